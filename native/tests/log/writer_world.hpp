// A log with its writer in a directory of their own, and checks of the files after a report.
#pragma once

#include <poll.h>

#include <map>
#include <memory>

#include "holdfast/log/log.hpp"
#include "holdfast/log/writer.hpp"
#include "tests/log/frames.hpp"

namespace holdfast::test {

inline constexpr Incarnation kIncarnation{1, 2};

struct RoundSeen {
    RoundFields fields;
    u64 offset;
    std::vector<std::string> frames;
};

// Returns all rounds of a journal file, each checked; D must be dense from `first_d` on.
inline std::vector<RoundSeen> rounds_of(const std::string& file, u64 first_d = 1) {
    std::vector<RoundSeen> out;
    std::size_t at = kRoundAlign;
    while (at < file.size()) {
        const std::size_t begin = at;
        const std::string payload = block_at(file, at, kRoundBlock, first_d);
        RoundSeen round{get<RoundFields>(payload, 0), begin, {}};
        CHECK(payload.size() == sizeof(RoundFields) && at == begin + sizeof(RoundHeader));
        CHECK(round.fields.first_d == first_d && round.fields.previous_d == first_d - 1);
        CHECK(round.fields.synced_d < first_d && round.fields.salt == kIncarnation.low);
        const std::size_t end = at + round.fields.bytes;
        while (at < end) {
            round.frames.push_back(block_at(file, at, kFrameBlock, first_d).substr(16));
            first_d += FrameReader(bytes_of(round.frames.back())).count();
        }
        CHECK(at == end && first_d == round.fields.last_d + 1);
        at = (at + kRoundAlign - 1) / kRoundAlign * kRoundAlign;
        CHECK(file.size() >= at);
        for (std::size_t i = end; i < at; ++i) CHECK(file[i] == 0);
        out.push_back(std::move(round));
    }
    return out;
}

class World {
 public:
    explicit World(SyncMode mode = SyncMode::group, u64 topics = 3) {
        for (u64 topic = 1; topic <= topics; ++topic) {
            log.topics().add(topic, 0, false);
            log.topics().open_session(topic, topic, "p", 0);
        }
        start_writer(mode);
        use_journal("journal1");
    }

    // A writer that goes on with the same log and the same files.
    void start_writer(SyncMode mode) {
        writer.reset(
            new Writer(log.queue(), log.next_d() - 1, directory.path(), mode, kIncarnation));
        writer->start();
    }

    void use_journal(const std::string& name) {
        const int fd = directory.make(name);
        writer->use_journal(fd, kRoundAlign);
        ::close(fd);
    }

    // Sends one entry for one topic; returns its D.
    u64 publish(u64 topic, const std::string& bytes, bool urgent = true) {
        sent[topic].push_back(bytes);
        return apply(frame({test::publish(topic, topic, 0, "p", {{0, 1, bytes}})}), urgent);
    }

    u64 apply(const std::string& text, bool urgent = true, bool redo = false) {
        log.begin(bytes_of(text), 3, 4, redo);
        while (log.step().has_value()) log.accept();
        return log.finish(urgent).last_d;
    }

    // Waits until `done` holds for the report, or the writer fails.
    template <class Done>
    WriterReport wait(Done done) {
        for (;;) {
            const WriterReport report = writer->poll();
            if (report.failure || done(report)) return report;
            pollfd ready{writer->event_fd(), POLLIN, 0};
            CHECK(::poll(&ready, 1, patience_ms()) == 1);
        }
    }

    WriterReport wait_durable(u64 d) {
        const WriterReport report =
            wait([d](const WriterReport& each) { return each.durable_d >= d; });
        CHECK(!report.failure && report.durable_d >= d && report.journal_d >= report.durable_d);
        return report;
    }

    // Waits until the writer fails, or has made `d` durable although it should fail.
    WriterReport wait_either(u64 d) {
        return wait([d](const WriterReport& each) { return each.durable_d >= d; });
    }

    WriterReport wait_failure() {
        return wait([](const WriterReport&) { return false; });
    }

    std::string journal(const std::string& name) const {
        return read_file(directory.path() + "/" + name);
    }

    // Checks that every sent entry is in its ledger.
    void check_ledgers() const {
        for (const auto& [topic, entries] : sent) {
            const u64 ledger = const_cast<Log&>(log).topics().get(topic).ledger;
            CHECK(directory.entries(ledger) == entries);
        }
    }

    Directory directory;
    Log log;
    WriterPointer writer;
    std::map<u64, std::vector<std::string>> sent;
};

}  // namespace holdfast::test
