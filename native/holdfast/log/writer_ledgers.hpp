// The ledger files of a writer: opened when needed, kept open, closed when there are too many.
//
// The writer's thread opens and writes. Other threads ask which ledgers have to be synced, and
// report when they were. The lock covers the table, never a system call that may wait for the disk.
// While the writer is writing ledgers, other threads take no file out of the table.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/base/files.hpp"
#include "holdfast/base/points.hpp"
#include "holdfast/log/io.hpp"
#include "holdfast/log/round.hpp"

namespace holdfast {

// Of the writer, its ledger files included.
HOLDFAST_POINTS(WriterPoint, journal_write, journal_half, journal_written, ledger_open,
                ledger_write, ledger_half, ledger_written, journal_synced, round_done);

// The failed step, its errno and its file. `error` 0: no failure.
struct IoFailure {
    IoOp op = IoOp::count_;
    int error = 0;
    std::string what;

    explicit operator bool() const { return error != 0; }
};

struct UnsyncedLedger {
    u64 ledger;
    int data, index;  // duplicates, which the receiver closes
    u64 size;         // written so far
};

class LedgerFileTable {
 public:
    LedgerFileTable(std::string directory, const Incarnation& incarnation)
        : directory_(std::move(directory)), incarnation_(incarnation) {
        rlimit limit{};
        if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
            open_max_ = std::clamp<u64>(limit.rlim_cur / 4, 8, kOpenMax);  // two each
    }

    // While it writes ledgers, the writer is between begin_writes() and end_writes().
    void begin_writes() {
        const std::lock_guard lock(mutex_);
        writing_ = true;
    }
    void end_writes() {
        {
            const std::lock_guard lock(mutex_);
            writing_ = false;
            for (const u64 ledger : leaving_) drop(ledger);
            leaving_.clear();
        }
        idle_.notify_all();
    }

    IoFailure write(const LedgerWrite& write, const std::vector<LedgerRun>& runs) {
        LedgerFile* file = nullptr;
        if (IoFailure failure = find(write, file)) return failure;
        if (const int error = file->data_file.lost(file->data.get()))
            return lose(*file, IoOp::ledger_write, error, ".data");
        if (const int error = file->index_file.lost(file->index.get()))
            return lose(*file, IoOp::index_write, error, ".index");
        pieces_.clear();
        for (std::size_t i = write.begin; i < write.end; ++i)
            pieces_.push_back({const_cast<std::byte*>(runs[i].data), runs[i].size});
        if (const int error =
                write_all(file->data.get(), pieces_, write.offset, IoOp::ledger_write))
            return {IoOp::ledger_write, error, path(*file, ".data")};
        at(WriterPoint::ledger_half);
        pieces_.clear();
        for (std::size_t i = write.begin; i < write.end; ++i)
            pieces_.push_back({const_cast<u64*>(runs[i].index), runs[i].count * sizeof(u64)});
        if (const int error =
                write_all(file->index.get(), pieces_, write.index_offset(), IoOp::index_write))
            return {IoOp::index_write, error, path(*file, ".index")};
        const std::lock_guard lock(mutex_);
        if (file->written == file->synced) file->dirty_since = ++moment_;
        file->written = write.offset + write.size;
        return {};
    }

    // Returns ledgers written since they were last returned here, those that wait longest first.
    std::vector<UnsyncedLedger> unsynced(std::size_t limit) {
        std::vector<UnsyncedLedger> out;
        const std::lock_guard lock(mutex_);
        std::vector<LedgerFile*> dirty;
        for (LedgerFile* file : open_) {
            if (file->written != file->synced) dirty.push_back(file);
        }
        std::sort(dirty.begin(), dirty.end(), [](const LedgerFile* a, const LedgerFile* b) {
            return a->dirty_since < b->dirty_since;
        });
        for (LedgerFile* file : dirty) {
            if (out.size() == limit) break;
            const int data = ::fcntl(file->data.get(), F_DUPFD_CLOEXEC, 3);
            const int index = data < 0 ? -1 : ::fcntl(file->index.get(), F_DUPFD_CLOEXEC, 3);
            if (index < 0) {  // no descriptors left; those found can be synced meanwhile
                if (data >= 0) ::close(data);
                break;
            }
            out.push_back({file->ledger, data, index, file->written});
        }
        return out;
    }

    void synced(u64 ledger, u64 size) {
        const std::lock_guard lock(mutex_);
        const auto found = files_.find(ledger);
        if (found == files_.end()) return;
        LedgerFile& file = *found->second;
        file.synced = std::max(file.synced, std::min(size, file.written));
        if (file.synced != file.written) file.dirty_since = ++moment_;
    }

    // The ledger is deleted: its files are closed, at the latest when the current round has ended.
    void forget(u64 ledger) {
        const std::lock_guard lock(mutex_);
        if (writing_)
            leaving_.push_back(ledger);
        else
            drop(ledger);
    }

    // From here on the ledger is written to its files of this generation, which must exist. Returns
    // how far this writer wrote the files of the generation before; 0: not at all.
    u64 use_generation(u64 ledger, u32 generation) {
        std::unique_lock lock(mutex_);
        idle_.wait(lock, [this] { return !writing_; });
        generations_[ledger] = generation;
        const auto found = files_.find(ledger);
        if (found == files_.end()) return 0;
        const u64 written = found->second->written;
        std::erase(open_, found->second.get());
        files_.erase(found);
        return written;
    }

    // Returns a duplicate of the descriptor of a ledger's data, which the receiver closes; -1: it
    // is not open. A removed file can be read while it is open.
    int open_data(u64 ledger) {
        const std::lock_guard lock(mutex_);
        const auto found = files_.find(ledger);
        if (found == files_.end() || found->second->data.get() < 0) return -1;
        return ::fcntl(found->second->data.get(), F_DUPFD_CLOEXEC, 3);
    }

    std::size_t open_count() {
        const std::lock_guard lock(mutex_);
        return open_.size();
    }

 private:
    struct LedgerFile {
        u64 ledger = 0;
        u32 generation = 0;
        OwnedFd data, index;
        FileIdentity data_file, index_file;
        u64 written = 0, synced = 0;  // sizes of the data file
        u64 dirty_since = 0;
        u64 used = 0;
        int sync_error = 0;  // after a failure, a later success would mean nothing
    };

    // Other code has closed a descriptor: the next attempt opens the files again. Or it has removed
    // a file, which stays open here, so that its bytes can still be read.
    IoFailure lose(LedgerFile& file, IoOp op, int error, const char* ending) {
        IoFailure failure{op, error, path(file, ending)};
        if (error != EBADF) return failure;
        const std::lock_guard lock(mutex_);
        if (file.data_file.lost(file.data.get()) == EBADF) file.data.release();
        if (file.index_file.lost(file.index.get()) == EBADF) file.index.release();
        file.data = OwnedFd();
        file.index = OwnedFd();
        std::erase(open_, &file);
        return failure;
    }

    void drop(u64 ledger) {
        generations_.erase(ledger);
        const auto found = files_.find(ledger);
        if (found == files_.end()) return;
        std::erase(open_, found->second.get());
        files_.erase(found);
    }

    std::string path(const LedgerFile& file, const char* ending) const {
        char name[64];
        if (file.generation == 0)
            std::snprintf(name, sizeof name, "/ledgers/%016llx%s",
                          static_cast<unsigned long long>(file.ledger), ending);
        else
            std::snprintf(name, sizeof name, "/ledgers/%016llx.%u%s",
                          static_cast<unsigned long long>(file.ledger), file.generation, ending);
        return directory_ + name;
    }

    // Returns the open files of this ledger, and opens them if needed.
    IoFailure find(const LedgerWrite& write, LedgerFile*& out) {
        {
            const std::lock_guard lock(mutex_);
            std::unique_ptr<LedgerFile>& place = files_[write.ledger];
            if (place == nullptr) {
                place = std::make_unique<LedgerFile>();
                place->ledger = write.ledger;
                place->written = place->synced = write.offset;
                const auto other = generations_.find(write.ledger);
                if (other != generations_.end()) place->generation = other->second;
            }
            out = place.get();
            out->used = ++moment_;
            if (out->data.get() >= 0) return {};
        }
        at(WriterPoint::ledger_open);
        if (IoFailure failure = make_room()) return failure;
        const bool fresh = write.offset == kFileHeaderSize && out->generation == 0;
        OwnedFd data, index;
        if (IoFailure failure = open(*out, ".data", FileKind::ledger_data, fresh, data))
            return failure;
        if (IoFailure failure = open(*out, ".index", FileKind::ledger_index, fresh, index))
            return failure;
        const std::lock_guard lock(mutex_);
        out->data_file = FileIdentity(data.get());
        out->index_file = FileIdentity(index.get());
        out->data = std::move(data);
        out->index = std::move(index);
        open_.push_back(out);
        return {};
    }

    // A ledger that starts here has no bytes yet: a file that a crash left under its name is
    // emptied.
    IoFailure open(const LedgerFile& file, const char* ending, FileKind kind, bool fresh,
                   OwnedFd& out) {
        const std::string name = path(file, ending);
        int fd = open_file(name.c_str(), O_RDWR | (fresh ? O_CREAT | O_EXCL : 0));
        const bool left_over = fresh && fd == -EEXIST;
        if (left_over) fd = open_file(name.c_str(), O_RDWR);
        if (fd < 0) return {IoOp::ledger_open, -fd, name};
        out = OwnedFd(fd);
        if (out.get() < 0) return {IoOp::ledger_open, errno, name};
        if (left_over) {
            if (const int error = truncate_file(out.get(), 0))
                return {IoOp::ledger_truncate, error, name};
        }
        if (!fresh) return {};
        FileHeader header = make_file_header(kind, file.ledger, incarnation_);
        pieces_.assign(1, {&header, sizeof header});
        const IoOp op = kind == FileKind::ledger_data ? IoOp::ledger_write : IoOp::index_write;
        if (const int error = write_all(out.get(), pieces_, 0, op)) return {op, error, name};
        return {};
    }

    // Closes a quarter of the files, the least recently used. Unsynced files are synced first,
    // because without an open file a failure is never reported. Many are synced at once, so that
    // one commit of the file system serves them all.
    IoFailure make_room() {
        std::vector<LedgerFile*> leaving, dirty;
        {
            const std::lock_guard lock(mutex_);
            if (open_.size() < open_max_) return {};
            const auto last = open_.begin() + static_cast<std::ptrdiff_t>((open_max_ + 3) / 4);
            std::partial_sort(open_.begin(), last, open_.end(), [](const auto* a, const auto* b) {
                return std::pair(a->written != a->synced, a->used) <
                       std::pair(b->written != b->synced, b->used);
            });
            leaving.assign(open_.begin(), last);
            for (LedgerFile* file : leaving) {
                if (file->written != file->synced) dirty.push_back(file);
            }
        }
        if (dirty.size() < leaving.size()) {  // closing the synced ones is enough
            std::erase_if(leaving, [&](LedgerFile* file) {
                return std::find(dirty.begin(), dirty.end(), file) != dirty.end();
            });
            dirty.clear();
        }
        for (LedgerFile* file : dirty)
            ::sync_file_range(file->data.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
        for (LedgerFile* file : dirty) {
            int& error = file->sync_error;
            if (error == 0) error = sync_data(file->data.get(), IoOp::ledger_sync);
            if (error == 0) error = sync_data(file->index.get(), IoOp::ledger_sync);
            if (error != 0) return {IoOp::ledger_sync, error, path(*file, ".data")};
        }
        const std::lock_guard lock(mutex_);
        for (LedgerFile* file : leaving) {
            file->synced = file->written;
            file->data = OwnedFd();
            file->index = OwnedFd();
            std::erase(open_, file);
        }
        return {};
    }

    static constexpr u64 kOpenMax = 4096;

    const std::string directory_;
    const Incarnation incarnation_;
    u64 open_max_ = 64;
    std::vector<iovec> pieces_;  // of the writer's thread alone
    std::mutex mutex_;
    std::condition_variable idle_;
    bool writing_ = false;
    u64 moment_ = 0;
    std::vector<u64> leaving_;
    std::unordered_map<u64, std::unique_ptr<LedgerFile>>
        files_;                      // all that were written, until they are forgotten
    std::vector<LedgerFile*> open_;  // those of them that are open
    std::unordered_map<u64, u32> generations_;
};

}  // namespace holdfast
