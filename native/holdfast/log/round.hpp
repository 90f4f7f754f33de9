// Bytes that wait to be written: portions, which the log fills frame by frame, and rounds. A round
// is all portions that waited when it started.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "holdfast/log/journal_layout.hpp"
#include "holdfast/log/round_memory.hpp"

namespace holdfast {

// Neighbouring bytes of one ledger, in memory as in their file.
struct LedgerRun {
    u64 ledger;
    u64 offset;  // in the data file
    const std::byte* data;
    u64 size;
    u64 first_entry;
    const u64* index;  // the file offsets of the blocks that begin in it
    u64 count;
};

class Portion {
 public:
    explicit Portion(ChunkPool& pool) : journal_(pool), data_(pool), index_(pool) {}

    u64 first_d = 0;  // of the events that go to the journal; 0: none does
    u64 last_d = 0;
    u64 begin_d =
        0;  // the D that the next event would have got before the first frame of this portion
    u64 settled_d = 0;  // the last D given after its last frame
    u64 time = 0;       // log time
    bool urgent = false;

    Arena& journal() { return journal_; }
    const Arena& journal() const { return journal_; }
    const std::vector<LedgerRun>& runs() const { return runs_; }
    u64 bytes() const { return journal_.size() + data_.size() + index_.size(); }
    bool empty() const { return journal_.size() == 0 && runs_.empty(); }

    void clear() {
        journal_.clear();
        data_.clear();
        index_.clear();
        runs_.clear();
        first_d = last_d = begin_d = settled_d = time = 0;
        urgent = false;
    }

    // Adds one block at the end of a ledger, at `offset` and `entry`.
    void add_block(u64 ledger, u64 offset, u64 entry, const BlockHeader& header,
                   const std::byte* payload) {
        const u64 space = block_space(header.size);
        auto* row = reinterpret_cast<u64*>(index_.reserve(sizeof(u64)));
        *row = offset;
        if (space > kWholeMax && space > data_.room()) [[unlikely]] {
            add_in_pieces({ledger, offset, nullptr, 0, entry, row, 1}, header, payload);
            return;
        }
        std::byte* place = data_.reserve(space);
        std::memset(place + space - kBlockPadding, 0, kBlockPadding);
        std::memcpy(place, &header, sizeof header);
        if (header.size > 0) std::memcpy(place + sizeof header, payload, header.size);
        extend({ledger, offset, place, space, entry, row, 1});
    }

    // Takes over the content of a small, later portion by copying it: small frames share their
    // chunks.
    void absorb(const Portion& other) {
        for (const Chunk& chunk : other.journal_.chunks())
            journal_.append(chunk.memory.get(), chunk.used);
        for (LedgerRun run : other.runs_) {
            std::byte* data = data_.reserve(run.size);
            std::memcpy(data, run.data, run.size);
            auto* index = reinterpret_cast<u64*>(index_.reserve(run.count * sizeof(u64)));
            std::memcpy(index, run.index, run.count * sizeof(u64));
            run.data = data;
            run.index = index;
            extend(run);
        }
        if (first_d == 0) first_d = other.first_d;
        last_d = std::max(last_d, other.last_d);
        settled_d = other.settled_d;
        time = other.time;
        urgent |= other.urgent;
    }

 private:
    void extend(const LedgerRun& next) {
        if (!runs_.empty()) {
            LedgerRun& last = runs_.back();
            if (last.ledger == next.ledger && last.data + last.size == next.data &&
                last.index + last.count == next.index && last.offset + last.size == next.offset) {
                last.size += next.size;
                last.count += next.count;
                return;
            }
        }
        runs_.push_back(next);
    }

    // A large block is spread over the ends and starts of chunks, so that all chunks have one size.
    // Only the first run of it has a row of the index.
    void add_in_pieces(LedgerRun run, const BlockHeader& header, const std::byte* payload) {
        static constexpr std::byte kZeros[kBlockPadding] = {};
        const auto* head = reinterpret_cast<const std::byte*>(&header);
        const u64 padding = block_space(header.size) - sizeof header - header.size;
        const std::pair<const std::byte*, u64> parts[] = {
            {head, sizeof header}, {payload, header.size}, {kZeros, padding}};
        for (auto [bytes, left] : parts) {
            while (left > 0) {
                run.size = std::min<u64>(left, data_.room() > 0 ? data_.room() : kChunkSize);
                std::byte* place = data_.reserve(run.size);
                std::memcpy(place, bytes, run.size);
                run.data = place;
                extend(run);
                bytes += run.size;
                left -= run.size;
                run.offset += run.size;
                run.index += run.count;
                run.count = 0;
            }
        }
    }

    static constexpr u64 kWholeMax = 16 << 10;  // at most that much of a chunk stays unused

    Arena journal_, data_, index_;
    std::vector<LedgerRun> runs_;
};

// The part of a round for one ledger: runs [begin, end) of Round::runs, contiguous in its file.
struct LedgerWrite {
    u64 ledger;
    u64 offset;
    u64 size;
    u64 first_entry;
    u64 count;
    std::size_t begin, end;

    u64 index_offset() const { return kFileHeaderSize + first_entry * sizeof(u64); }
};

class Round {
 public:
    Round() = default;
    explicit Round(std::vector<std::unique_ptr<Portion>> portions)
        : portions_(std::move(portions)) {
        if (portions_.empty()) return;
        begin_d_ = portions_.front()->begin_d;
        settled_d_ = portions_.back()->settled_d;
        time_ = portions_.back()->time;
        for (const auto& each : portions_) {
            if (first_d_ == 0) first_d_ = each->first_d;
            last_d_ = std::max(last_d_, each->last_d);
            urgent_ |= each->urgent;
            journal_bytes_ += each->journal().size();
            bytes_ += each->bytes();
        }
        arrange();
    }

    bool empty() const { return portions_.empty(); }
    bool journaled() const { return first_d_ != 0; }
    u64 first_d() const { return first_d_; }
    u64 last_d() const { return last_d_; }
    u64 begin_d() const { return begin_d_; }
    u64 settled_d() const { return settled_d_; }
    bool urgent() const { return urgent_; }
    u64 bytes() const { return bytes_; }
    u64 journal_bytes() const { return journal_bytes_; }
    const std::vector<std::unique_ptr<Portion>>& portions() const { return portions_; }
    const std::vector<LedgerRun>& runs() const { return runs_; }
    const std::vector<LedgerWrite>& writes() const { return writes_; }

    RoundHeader header(u64 previous_d, u64 stable_view, u64 stable_index, u64 synced_d,
                       u64 salt) const {
        return make_round_header({previous_d, first_d_, last_d_, stable_view, stable_index,
                                  journal_bytes_, synced_d, salt},
                                 time_);
    }

    // The memory goes back to the log, which fills portions.
    std::vector<std::unique_ptr<Portion>> release() {
        runs_.clear();
        writes_.clear();
        return std::move(portions_);
    }

 private:
    // Orders ledgers one after another, each in its own order, so that each is written with one
    // call.
    void arrange() {
        for (const auto& each : portions_)
            runs_.insert(runs_.end(), each->runs().begin(), each->runs().end());
        std::stable_sort(runs_.begin(), runs_.end(), [](const LedgerRun& a, const LedgerRun& b) {
            return a.ledger < b.ledger;
        });
        for (std::size_t i = 0; i < runs_.size(); ++i) {
            const LedgerRun& run = runs_[i];
            if (!writes_.empty() && writes_.back().ledger == run.ledger &&
                writes_.back().offset + writes_.back().size == run.offset) {
                writes_.back().size += run.size;
                writes_.back().count += run.count;
                writes_.back().end = i + 1;
            } else {
                writes_.push_back(
                    {run.ledger, run.offset, run.size, run.first_entry, run.count, i, i + 1});
            }
        }
    }

    std::vector<std::unique_ptr<Portion>> portions_;
    std::vector<LedgerRun> runs_;
    std::vector<LedgerWrite> writes_;
    u64 first_d_ = 0, last_d_ = 0, begin_d_ = 0, settled_d_ = 0, time_ = 0;
    u64 bytes_ = 0, journal_bytes_ = 0;
    bool urgent_ = false;
};

}  // namespace holdfast
