// The set of states seen, by their 128-bit hashes: open addressing, doubled when two thirds full.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

#include "model/state.hpp"

namespace model {

class Visited {
 public:
    explicit Visited(std::size_t bytes_max) : bytes_max_(bytes_max) { table_ = map(capacity_); }
    ~Visited() { ::munmap(table_, capacity_ * sizeof(Hash)); }
    Visited(const Visited&) = delete;
    Visited& operator=(const Visited&) = delete;

    std::size_t size() const { return size_; }
    bool full() const { return full_; }

    void prefetch(Hash hash) const { __builtin_prefetch(&table_[hash.low & (capacity_ - 1)]); }

    // True: it was not there. When memory is used up nothing is inserted any more and everything looks old.
    bool insert(Hash hash) {
        if (size_ * 3 >= capacity_ * 2 && !grow()) return false;
        std::size_t at = hash.low & (capacity_ - 1);
        while (table_[at].low != 0) {
            if (table_[at] == hash) return false;
            at = (at + 1) & (capacity_ - 1);
        }
        table_[at] = hash;
        ++size_;
        return true;
    }

 private:
    static Hash* map(std::size_t capacity) {
        void* memory = ::mmap(nullptr, capacity * sizeof(Hash), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) throw std::bad_alloc();
        ::madvise(memory, capacity * sizeof(Hash), MADV_HUGEPAGE);
        return static_cast<Hash*>(memory);
    }

    bool grow() {
        const std::size_t larger = capacity_ * 2;
        if ((capacity_ + larger) * sizeof(Hash) > bytes_max_) {
            full_ = size_ * 10 >= capacity_ * 9;  // the last places are used before we give up
            return !full_;
        }
        Hash* table = map(larger);
        for (std::size_t i = 0; i < capacity_; ++i) {
            if (table_[i].low == 0) continue;
            std::size_t at = table_[i].low & (larger - 1);
            while (table[at].low != 0) at = (at + 1) & (larger - 1);
            table[at] = table_[i];
        }
        ::munmap(std::exchange(table_, table), capacity_ * sizeof(Hash));
        capacity_ = larger;
        return true;
    }

    std::size_t bytes_max_;
    std::size_t capacity_ = std::size_t{1} << 16;
    std::size_t size_ = 0;
    bool full_ = false;
    Hash* table_ = nullptr;
};

}  // namespace model
