// The writer: a thread that makes rounds durable, and reports through an eventfd.
//
//   a round:  the steps of log/round_plan.hpp, then it is reported; the journal's sync is begun when it is written
//
// It takes all portions as soon as one of them is urgent; others wait at most 10 ms. Bytes that
// fail stay in memory: the writer reports the error and stands still until resume(). It never
// repeats a failed sync on the same file. It writes the round again into another journal, which
// use_journal() must have named. After a crash ledgers may be ahead of the journal: recovery cuts
// them. Nothing is reported durable before its journal was synced and its ledgers were written.
//
// The thread knows nothing of Python. After fork() the child has no thread, and every call there is
// refused.
#pragma once

#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "holdfast/base/clock.hpp"
#include "holdfast/base/forks.hpp"
#include "holdfast/log/round_plan.hpp"
#include "holdfast/log/round_queue.hpp"
#include "holdfast/log/writer_ledgers.hpp"

namespace holdfast {

enum class SyncMode {
    group,   // durable after the round's sync
    always,  // the same, and every portion is urgent
    os,      // durable after the write; synced once a second
};

struct WriterReport {
    u64 durable_d = 0;        // the journal is synced up to here, and the ledgers are written
    u64 journal_d = 0;        // the journal is synced up to here
    u64 journal_offset = 0;   // where the next round of the journal in use begins
    u64 rounds = 0;           // written so far
    u64 journals = 0;         // the number of the call of use_journal() that is in effect, from 1
    u64 journal_first_d = 0;  // the first D in the journal in use; 0: none yet
    u64 journal_bytes = 0;    // written so far, to all journals
    IoFailure failure;
};

class Writer : private ForkAware {
 public:
    // `last_d`: the last D that was given before; portions in the queue come after it.
    Writer(std::shared_ptr<RoundQueue> queue, u64 last_d, std::string directory, SyncMode mode,
           const Incarnation& incarnation)
        : queue_(std::move(queue)),
          ledgers_(std::move(directory), incarnation),
          mode_(mode),
          salt_(incarnation.low),
          event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
        if (event_.get() < 0)
            throw Error(Code::io, "cannot create an eventfd: " + errno_text(errno), errno);
        {
            const std::lock_guard lock(queue_->mutex());
            report_.durable_d = queue_->waits() ? queue_->begin_d() - 1 : last_d;
            report_.journal_d = synced_d_ = last_d;
        }
        remember();
    }

    // Never runs in a child of fork(), which has no such thread: see WriterPointer.
    ~Writer() override {
        stop(false);
        const ForkPause pause;
        forget(pause);
    }

    using ForkAware::forked;
    int event_fd() const { return event_.get(); }
    LedgerFileTable& ledgers() { return ledgers_; }

    void require_here() const {
        if (forked())
            throw Error(Code::misuse,
                        "this writer was created before fork(), and the child does not have its "
                        "thread; open the broker in the child");
    }

    void start() {
        require_here();
        const std::lock_guard lock(queue_->mutex());
        if (thread_ != nullptr) throw Error(Code::misuse, "the writer runs already");
        stop_ = false;
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all,
                        &before);  // other threads handle signals
        try {
            thread_ = std::make_unique<std::thread>([this] { run(); });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // With `flush` all portions are written first, unless the writer stands still after an error.
    void stop(bool flush) {
        require_here();
        {
            const std::lock_guard lock(queue_->mutex());
            stop_ = true;
            flush_ = flush;
        }
        queue_->changed().notify_all();
        if (thread_ != nullptr) thread_->join();
        thread_.reset();
    }

    // Takes effect from the next round on. The descriptor is duplicated.
    void use_journal(int fd, u64 offset) {
        require_here();
        if (offset < kRoundAlign || offset % kRoundAlign != 0)
            throw Error(Code::misuse,
                        "a journal continues at a multiple of 4096 above its header, "
                        "not at " +
                            std::to_string(offset));
        OwnedFd own(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
        if (own.get() < 0)
            throw Error(Code::io, "cannot use the journal: " + errno_text(errno), errno);
        const std::lock_guard lock(queue_->mutex());
        next_journal_ = std::move(own);
        next_offset_ = offset;
        ++next_number_;
    }

    void set_stable(u64 view, u64 index) {
        require_here();
        const std::lock_guard lock(queue_->mutex());
        stable_ = {view, index};
    }

    // Returns the state so far; the eventfd is silent until the next change.
    WriterReport poll() {
        require_here();
        u64 count;
        if (::read(event_.get(), &count, sizeof count) < 0) count = 0;  // nothing new
        const std::lock_guard lock(queue_->mutex());
        return report_;
    }

    // After an error: repeats the step that failed.
    void resume() {
        require_here();
        {
            const std::lock_guard lock(queue_->mutex());
            if (!report_.failure) throw Error(Code::misuse, "the writer has not failed");
            if (report_.failure.op == IoOp::journal_sync && next_journal_.get() < 0)
                throw Error(Code::misuse,
                            "a failed sync is never repeated on the same file; call "
                            "use_journal() with a new one first");
            report_.failure = {};
        }
        queue_->changed().notify_all();
    }

 private:
    using Lock = std::unique_lock<std::mutex>;

    void in_child() noexcept override { queue_->leave_to_parent(); }

    // -- the thread -----------------------------------------------------------------------------------

    void run() {
        pthread_setname_np(pthread_self(), "holdfast-writer");
        Lock lock(queue_->mutex());
        while (wait_for_work(lock)) {
            IoFailure failure;
            if (!round_.empty() || queue_->waits()) {
                switch_journal();
                const FramePosition stable = stable_;
                lock.unlock();
                if (round_.empty()) take();
                failure = write_round(stable);
                lock.lock();
                settle(failure);
                tell();
                lock.unlock();
                if (!failure) queue_->give_back(round_);
            } else {
                lock.unlock();
            }
            if (!failure && dirty_ && RoundQueue::Clock::now() >= next_sync_)
                failure = sync_dirty();
            lock.lock();
            if (failure) fail(std::move(failure));
        }
        lock.unlock();
        IoFailure failure = sync_dirty();
        if (!failure) return;
        lock.lock();
        fail(std::move(failure));
    }

    // Returns false if the thread must end.
    bool wait_for_work(Lock& lock) {
        for (;;) {
            const bool stands = static_cast<bool>(report_.failure);
            const bool has = !round_.empty() || queue_->waits();
            if (stop_ && (stands || !flush_ || !has)) return false;
            if (stands) {
                queue_->changed().wait(lock);
                continue;
            }
            if (!round_.empty()) return true;
            if (queue_->waits() && (stop_ || queue_->urgent() || mode_ == SyncMode::always))
                return true;
            const auto now = RoundQueue::Clock::now();
            if (queue_->waits() && now >= queue_->due()) return true;
            if (dirty_ && now >= next_sync_) return true;
            if (queue_->waits() && (!dirty_ || queue_->due() < next_sync_))
                queue_->changed().wait_until(lock, queue_->due());
            else if (dirty_)
                queue_->changed().wait_until(lock, next_sync_);
            else
                queue_->changed().wait(lock);
        }
    }

    // Under the lock. The old file is not needed any more, but for its last sync in the mode `os`.
    void switch_journal() {
        if (next_journal_.get() < 0) return;
        if (journal_file_.lost(journal_.get()) == EBADF) journal_.release();  // now of another file
        if (dirty_) left_journals_.push_back(std::move(journal_));
        journal_ = OwnedFd(next_journal_.release());
        journal_file_ = FileIdentity(journal_.get());
        offset_ = report_.journal_offset = next_offset_;
        report_.journal_first_d = 0;
        report_.journals = next_number_;
    }

    void take() {
        round_ = queue_->take();
        journal_written_ = journal_synced_ = !round_.journaled();
        next_write_ = 0;
    }

    // Under the lock: reports the progress of the round.
    void settle(const IoFailure& failure) {
        report_.journal_offset = offset_;
        report_.journal_bytes = journal_bytes_;
        if (journal_synced_) {
            report_.journal_d = std::max(report_.journal_d, round_.settled_d());
            if (round_.journaled() && report_.journal_first_d == 0)
                report_.journal_first_d = round_.first_d();
        }
        if (failure) return;
        at(WriterPoint::round_done);
        queue_->discount(round_);
        report_.durable_d = round_.settled_d();
        ++report_.rounds;
    }

    void fail(IoFailure failure) {
        report_.failure = std::move(failure);
        tell();
    }

    void tell() {
        const u64 one = 1;
        [[maybe_unused]] const auto told = ::write(event_.get(), &one, sizeof one);
    }

    // -- a round --------------------------------------------------------------------------------------

    IoFailure write_round(const FramePosition& stable) {
        IoFailure ledger_failure;
        for (const RoundStep step : kRoundPlan) {
            IoFailure failure;
            switch (step) {
                case RoundStep::journal_write:
                    if (!journal_written_) failure = write_journal(stable);
                    break;
                // the journal does not wait for a ledger without room
                case RoundStep::ledger_write:
                    ledger_failure = write_ledgers();
                    break;
                case RoundStep::journal_sync:
                    if (!journal_synced_) failure = sync_journal();
                    break;
            }
            if (failure) return failure;
        }
        return ledger_failure;
    }

    IoFailure write_journal(const FramePosition& stable) {
        if (journal_.get() < 0)
            return {IoOp::journal_write, EBADF, "no journal; call use_journal() first"};
        if (const int error = journal_file_.lost(journal_.get()))
            return {IoOp::journal_write, error, journal_words()};
        at(WriterPoint::journal_write);
        RoundHeader header =
            round_.header(round_.first_d() - 1, stable.view, stable.index,
                          mode_ == SyncMode::os ? synced_d_ : round_.first_d() - 1, salt_);
        pieces_.assign(1, {&header, sizeof header});
        for (const auto& portion : round_.portions()) {
            for (const Chunk& chunk : portion->journal().chunks())
                pieces_.push_back({chunk.memory.get(), chunk.used});
        }
        static std::byte zeros[kRoundAlign];
        const u64 used = sizeof header + round_.journal_bytes();
        const u64 space = round_space(round_.journal_bytes());
        pieces_.push_back({zeros, space - used});
        if (is_armed(WriterPoint::journal_half)) [[unlikely]] {
            std::vector<iovec> half(pieces_.begin(), pieces_.begin() + 2);
            half.back().iov_len /= 2;
            write_all(journal_.get(), half, offset_, IoOp::journal_write);
            at(WriterPoint::journal_half);
        }
        if (const int error = write_all(journal_.get(), pieces_, offset_, IoOp::journal_write))
            return {IoOp::journal_write, error, journal_words()};
        journal_written_ = true;
        at(WriterPoint::journal_written);
        if (mode_ != SyncMode::os && space >= kWorthStarting && !round_.writes().empty()) {
            // Lets the disk work while the ledgers are copied. Only a hint: the sync comes below.
            ::sync_file_range(journal_.get(), static_cast<off64_t>(offset_),
                              static_cast<off64_t>(space), SYNC_FILE_RANGE_WRITE);
        }
        return {};
    }

    IoFailure sync_journal() {
        const u64 space = round_space(round_.journal_bytes());
        if (mode_ == SyncMode::os) {
            if (!std::exchange(dirty_, true))
                next_sync_ = RoundQueue::Clock::now() + std::chrono::seconds(1);
        } else if (const int error = sync_data(journal_.get(), IoOp::journal_sync)) {
            journal_written_ = false;  // all of it goes to the next journal
            return {IoOp::journal_sync, error, journal_words()};
        }
        at(WriterPoint::journal_synced);
        written_d_ = round_.last_d();
        offset_ += space;
        journal_bytes_ += space;
        journal_synced_ = true;
        return {};
    }

    IoFailure write_ledgers() {
        IoFailure failure;
        ledgers_.begin_writes();
        for (; next_write_ < round_.writes().size() && !failure; next_write_ += !failure) {
            at(WriterPoint::ledger_write);
            failure = ledgers_.write(round_.writes()[next_write_], round_.runs());
            if (!failure) at(WriterPoint::ledger_written);
        }
        ledgers_.end_writes();
        return failure;
    }

    // The mode `os`: syncs the bytes of the last second, also those in a journal that was left
    // since.
    IoFailure sync_dirty() {
        if (!std::exchange(dirty_, false)) return {};
        int error = 0;
        for (const OwnedFd& each : std::exchange(left_journals_, {})) {
            if (error == 0) error = sync_data(each.get(), IoOp::journal_sync);
        }
        if (error == 0) error = journal_file_.lost(journal_.get());
        if (error == 0) error = sync_data(journal_.get(), IoOp::journal_sync);
        if (error != 0) return {IoOp::journal_sync, error, journal_words()};
        synced_d_ = written_d_;
        return {};
    }

    std::string journal_words() const { return "the journal at offset " + std::to_string(offset_); }

    static constexpr u64 kWorthStarting = 64 << 10;

    const std::shared_ptr<RoundQueue> queue_;
    LedgerFileTable ledgers_;
    const SyncMode mode_;
    const u64 salt_;
    const OwnedFd event_;
    std::unique_ptr<std::thread> thread_;

    // Under the queue's lock.
    WriterReport report_;
    FramePosition stable_{};
    OwnedFd next_journal_;
    u64 next_offset_ = 0, next_number_ = 0;
    bool stop_ = false, flush_ = false;

    // The thread's own.
    Round round_;  // being written, or waiting for resume()
    OwnedFd journal_;
    FileIdentity journal_file_;
    std::vector<OwnedFd> left_journals_;
    u64 offset_ = 0, journal_bytes_ = 0;
    std::vector<iovec> pieces_;
    std::size_t next_write_ = 0;
    bool journal_written_ = false, journal_synced_ = false;
    u64 written_d_ = 0, synced_d_ = 0;  // of the journal; they differ only in the mode `os`
    bool dirty_ = false;
    RoundQueue::Clock::time_point next_sync_;
};

// In a child of fork() a writer is left as it is: a thread that the child does not have may hold
// its lock.
struct DisposeWriter {
    void operator()(Writer* writer) const {
        if (!writer->forked()) delete writer;
    }
};
using WriterPointer = std::unique_ptr<Writer, DisposeWriter>;

}  // namespace holdfast
