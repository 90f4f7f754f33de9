// The log: positions, Ds, duplicates, sessions, the bytes of rounds, and that a redo gives the same
// bytes.
#include "holdfast/log/log.hpp"
#include "tests/log/frames.hpp"

using namespace holdfast;
using namespace holdfast::test;

// The content of a round, as bytes.
struct Taken {
    u64 first_d = 0, last_d = 0, settled_d = 0;
    bool urgent = false;
    std::string journal;  // the frame blocks
    struct Write {
        u64 offset, first_entry;
        std::string data, index;
    };
    std::vector<std::pair<u64, Write>> writes;

    std::vector<std::string> entries(std::size_t i = 0) const {
        const Write& write = writes.at(i).second;
        return entries_of(write.data, write.index, write.offset, write.first_entry);
    }
};

static Taken take(Log& log) {
    Round round = log.queue()->take();
    Taken out{round.first_d(), round.last_d(), round.settled_d(), round.urgent(), "", {}};
    for (const auto& portion : round.portions()) {
        for (const Chunk& chunk : portion->journal().chunks())
            out.journal.append(reinterpret_cast<const char*>(chunk.memory.get()), chunk.used);
    }
    CHECK(out.journal.size() == round.journal_bytes());
    for (const LedgerWrite& each : round.writes()) {
        Taken::Write write{each.offset, each.first_entry, "", ""};
        for (std::size_t i = each.begin; i < each.end; ++i) {
            const LedgerRun& run = round.runs()[i];
            write.data.append(reinterpret_cast<const char*>(run.data), run.size);
            write.index.append(reinterpret_cast<const char*>(run.index), run.count * 8);
        }
        CHECK(write.data.size() == each.size && write.index.size() == each.count * 8);
        out.writes.emplace_back(each.ledger, std::move(write));
    }
    log.queue()->discount(round);
    log.queue()->give_back(round);
    return out;
}

struct JournalFrame {
    u64 first_d, view, index, time;
    std::string frame;
};

static std::vector<JournalFrame> frames_of(const std::string& journal, u64 first_d) {
    std::vector<JournalFrame> out;
    std::size_t at = 0;
    while (at < journal.size()) {
        JournalFrame each{first_d, 0, 0, 0, ""};
        const std::string payload = block_at(journal, at, kFrameBlock, first_d, &each.time);
        each.view = get<u64>(payload, 0);
        each.index = get<u64>(payload, 8);
        each.frame = payload.substr(16);
        first_d += FrameReader(bytes_of(each.frame)).count();
        out.push_back(each);
    }
    return out;
}

// Events of kind 20 are durable; of kind 21 they are not; one of kind 22 appends its body to topic 1.
static Applied run(Log& log, const std::string& text, u64 index = 1, bool redo = false,
                   bool urgent = true) {
    log.begin(bytes_of(text), 9, index, redo);
    while (const auto event = log.step()) {
        if (event->kind == 22) log.append(1, std::vector<Bytes>{event->body});
        if (event->kind != 21) log.accept();
    }
    return log.finish(urgent);
}

static Log& with_topic(Log& log, bool deduplicate = false) {
    log.topics().add(1, 0, deduplicate);
    CHECK(log.topics().open_session(1, 1, "p", 0) == -1);
    return log;
}

static void test_publish() {
    Log log;
    with_topic(log);
    const std::string text =
        frame({publish(1, 1, 0, "p", {{0, 1, "abc"}, {1, 1, ""}, {2, 1, "12345678"}}),
               publish(1, 1, 0, "p", {{3, 1, "later"}})});
    const Applied applied = run(log, text, 5);
    CHECK(applied.first_d == 1 && applied.last_d == 2 && log.next_d() == 3 && log.next_ledger == 2);
    CHECK(applied.published.size() == 2);
    const Published first = applied.published[0], second = applied.published[1];
    CHECK(first.code == PublishCode::ok && first.ledger == 1 && first.entry == 0 &&
          first.ordinal == 0 && first.count == 3);
    CHECK(second.event == 1 && second.entry == 3 && second.ordinal == 3 && second.count == 1);
    CHECK(applied.opened.size() == 1 && applied.opened[0].topic == 1 &&
          applied.opened[0].ledger == 1);
    CHECK(applied.tails.size() == 1 && applied.tails[0].end_ordinal == 4 &&
          applied.tails[0].entries == 4);
    CHECK(applied.tails[0].size == 64 + 40 + 32 + 40 + 40 && applied.tails[0].time == 7);
    CHECK(log.pending_bytes() > 0);
    const Taken round = take(log);
    CHECK(log.pending_bytes() == 0);
    CHECK(round.first_d == 1 && round.last_d == 2 && round.settled_d == 2 && round.urgent);
    CHECK((round.entries() == std::vector<std::string>{"abc", "", "12345678", "later"}));
    const auto frames = frames_of(round.journal, 1);
    CHECK(frames.size() == 1 && frames[0].view == 9 && frames[0].index == 5 && frames[0].time == 7);
    CHECK(frames[0].frame == text);
    CHECK(take(log).writes.empty());
}

static void test_duplicates() {
    Log log;
    with_topic(log, true);
    run(log, frame({publish(1, 1, 0, "p", {{0, 1, "a"}, {1, 5, "b"}})}));
    CHECK(TopicTable::sequences(log.topics().get(1)).at(0).second == 5);
    const Applied again =
        run(log, frame({publish(1, 1, 0, "p", {{0, 1, "a"}, {5, 1, "x"}, {6, 1, "c"}, {6, 1, "d"}}),
                        publish(1, 1, 0, "p", {{6, 9, "e"}})}));
    CHECK(again.published[0].code == PublishCode::ok && again.published[0].count == 1);
    CHECK(again.published[0].duplicates == 3 && again.published[0].ordinal == 2);
    CHECK((again.duplicates == std::vector<u32>{0, 1, 3, 0}));
    CHECK(again.published[1].count == 0 && again.published[1].ledger == 0);  // takes no D
    CHECK(again.first_d == 2 && again.last_d == 2);
    // Chunks: only the last raises the sequence.
    run(log,
        frame({publish(1, 1, 0, "p", {{7, 0, "c1"}, {7, 0, "c2"}, {7, 1, "c3"}, {7, 1, "c3"}})}));
    CHECK((take(log).entries() == std::vector<std::string>{"a", "b", "c", "c1", "c2", "c3"}));
    // An unknown name does not hinder another; after removal, and after switching off, names start
    // anew.
    CHECK(log.topics().open_session(2, 1, "q", 0) == -1);
    CHECK(run(log, frame({publish(1, 2, 0, "q", {{0, 1, "q"}})})).published[0].count == 1);
    Topic& topic = log.topics().get(1);
    CHECK(TopicTable::forget_sequence(topic, "p") && !TopicTable::forget_sequence(topic, "p"));
    CHECK(run(log, frame({publish(1, 1, 0, "p", {{0, 1, "z"}})})).published[0].count == 1);
    log.topics().close_session(1);
    CHECK(log.topics().open_session(3, 1, "p", 0) == 0);
    log.topics().set_deduplicate(topic, false);
    CHECK(TopicTable::sequences(topic).empty());
    CHECK(run(log, frame({publish(1, 3, 0, "p", {{0, 1, "z"}, {0, 1, "z"}})})).published[0].count ==
          2);
}

// Local ingest publishes under a name of its own kind: each of its messages is stored once, under
// every policy of the topic.
static void test_always_deduplicated() {
    const std::string ingest = "holdfast.ingest.7f03";
    CHECK(always_deduplicated(ingest) && always_deduplicated("holdfast.ingest."));
    for (const char* other : {"", "p", "holdfast.ingest", "holdfast.ingest-x", "holdfast.",
                              "Holdfast.ingest.7", " holdfast.ingest.7"})
        CHECK(!always_deduplicated(other));

    Log log, redo;
    for (Log* each : {&log, &redo}) each->topics().add(1, 0, false);
    log.topics().open_session(1, 1, "p", 0);
    CHECK(log.topics().open_session(2, 1, ingest, 0) == -1);
    const std::vector<Entry> batch{{0, 1, "a"}, {4, 1, "b"}, {4, 1, "b"}, {2, 1, "x"}};
    const Applied first =
        run(log, frame({publish(1, 2, 0, ingest, batch), publish(1, 1, 0, "p", batch)}));
    CHECK(first.published[0].count == 2 && first.published[0].duplicates == 2);
    CHECK(first.published[1].count == 4 && first.published[1].duplicates == 0);
    CHECK((first.duplicates == std::vector<u32>{2, 3}));
    Topic& topic = log.topics().get(1);
    using Sequences = std::vector<std::pair<std::string, std::int64_t>>;
    CHECK((TopicTable::sequences(topic) == Sequences{{ingest, 4}}));  // in the snapshot

    // Its broker was killed and sends again; another session learns the last position.
    log.topics().close_session(2);
    CHECK((TopicTable::sequences(topic) == Sequences{{ingest, 4}}));
    CHECK(log.topics().open_session(3, 1, ingest, 0) == 4);
    CHECK(run(log, frame({publish(1, 3, 0, ingest, batch)})).published[0].count == 0);
    CHECK(run(log, frame({publish(1, 3, 0, ingest, {{4, 1, "b"}, {5, 2, "c"}})}))
              .published[0]
              .count == 1);

    // A redo from the journal gives the same bytes and the same state.
    const Taken round = take(log);
    for (const JournalFrame& each : frames_of(round.journal, 1)) run(redo, each.frame, 1, true);
    CHECK(take(redo).entries() == round.entries());
    CHECK((TopicTable::sequences(redo.topics().get(1)) == Sequences{{ingest, 6}}));

    // A policy that is switched on and off drops the producers of others, and keeps this one.
    log.topics().set_deduplicate(topic, true);
    CHECK(run(log, frame({publish(1, 1, 0, "p", {{9, 1, "d"}})})).published[0].count == 1);
    CHECK((TopicTable::sequences(topic) == Sequences{{ingest, 6}, {"p", 9}}));
    log.topics().set_deduplicate(topic, false);
    CHECK((TopicTable::sequences(topic) == Sequences{{ingest, 6}}));
    CHECK(run(log, frame({publish(1, 3, 0, ingest, {{6, 1, "c"}, {7, 1, "e"}})}))
              .published[0]
              .duplicates == 1);
    log.topics().close_session(3);
    log.topics().set_deduplicate(topic, false);  // no session has it open
    CHECK((TopicTable::sequences(topic) == Sequences{{ingest, 7}}));
    // Its segment is gone: it is removed by name, and starts anew.
    CHECK(TopicTable::forget_sequence(topic, ingest) && topic.producers.size() == 1);
    CHECK(log.topics().open_session(4, 1, ingest, 0) == -1);
}

static void test_refusals() {
    Log log;
    with_topic(log);
    log.topics().add(2, 0, false);
    const auto code = [&](const std::string& event) {
        const Applied applied = run(log, frame({event}));
        CHECK(applied.published[0].code == PublishCode::ok || applied.first_d == 0);
        return applied.published[0].code;
    };
    const std::vector<Entry> one{{0, 1, "x"}};
    CHECK(code(publish(3, 1, 0, "p", one)) == PublishCode::no_topic);
    CHECK(code(publish(1, 9, 0, "p", one)) == PublishCode::fenced);  // no such session
    CHECK(code(publish(2, 1, 0, "p", one)) == PublishCode::fenced);  // another topic's
    CHECK(code(publish(1, 1, 0, "q", one)) == PublishCode::fenced);  // another name's
    CHECK(code(publish(1, 1, 1, "p", one)) == PublishCode::fenced);  // an epoch that it never had
    CHECK(code(publish(1, 1, 0, "p", one)) == PublishCode::ok);
    log.topics().open_session(2, 1, "p", 4);
    CHECK(code(publish(1, 1, 0, "p", one)) == PublishCode::fenced);  // overtaken
    CHECK(code(publish(1, 2, 3, "p", one)) == PublishCode::fenced);  // older
    CHECK(code(publish(1, 2, 4, "p", one)) == PublishCode::ok);
    log.topics().close_session(2);
    log.topics().close_session(2);
    CHECK(code(publish(1, 2, 4, "p", one)) == PublishCode::fenced);  // closed
    log.topics().close_session(1);
    log.topics().open_session(5, 1, "p", 0);  // epoch 4 is not kept when all are gone
    CHECK(code(publish(1, 5, 0, "p", one)) == PublishCode::ok);
    log.topics().get(1).closed = true;
    CHECK(code(publish(1, 5, 0, "p", one)) == PublishCode::closed);
    log.topics().remove(1);
    CHECK(code(publish(1, 5, 0, "p", one)) == PublishCode::no_topic);
    CHECK(take(log).entries().size() == 3);
    CHECK_ERROR(Code::misuse, log.topics().add(2, 0, false), "topic 2");
    CHECK_ERROR(Code::misuse, log.topics().open_session(1, 7, "p", 0), "topic 7");
}

// A publish to an exchange is judged and returned; the caller appends its entries to other topics.
static void test_routed() {
    using Sequences = std::vector<std::pair<std::string, std::int64_t>>;
    Log log;
    with_topic(log, true);
    log.topics().get(1).routed = true;
    log.topics().add(2, 0, false);
    const std::string one = frame({publish(1, 1, 0, "p", {{5, 1, "a"}, {6, 0, "b"}, {6, 1, "c"}})});
    const auto route = [](Log& to, const std::string& bytes, bool redo) {
        to.begin(bytes_of(bytes), 9, 1, redo);
        const auto event = to.step();
        CHECK(event && event->kind == kPublishKind);
        const Judged judged = to.judge();
        if (judged.code == PublishCode::ok && !judged.fresh.empty()) {
            to.take();
            to.append(2, judged.fresh);
            to.accept();
        }
        CHECK(!to.step());
        CHECK(to.finish(true).published.empty());
        return judged;
    };
    Judged judged = route(log, one, false);
    CHECK(judged.topic == 1 && judged.code == PublishCode::ok);
    CHECK(judged.fresh.size() == 3 && judged.duplicates.empty());
    CHECK(log.topics().get(1).next_ordinal == 0 && log.topics().get(2).next_ordinal == 3);
    CHECK((TopicTable::sequences(log.topics().get(1)) == Sequences{{"p", 6}}));
    judged = route(log, one, false);  // again: all are duplicates, and it takes no D
    CHECK(judged.fresh.empty() && judged.duplicates.size() == 3 && log.next_d() == 2);
    const std::string more = frame({publish(1, 1, 0, "p", {{6, 1, "c"}, {7, 1, "d"}})});
    judged = route(log, more, false);
    CHECK((judged.fresh.size() == 1 && judged.duplicates == std::vector<u32>{0}));
    CHECK(route(log, frame({publish(1, 9, 0, "p", {{8, 1, "x"}})}), false).code ==
          PublishCode::fenced);
    log.topics().get(1).closed = true;
    CHECK(route(log, frame({publish(1, 1, 0, "p", {{8, 1, "x"}})}), false).code ==
          PublishCode::closed);

    const Taken taken = take(log);
    CHECK((taken.entries() == std::vector<std::string>{"a", "b", "c", "d"}));
    Log again;
    with_topic(again, true);
    again.topics().get(1).routed = true;
    again.topics().add(2, 0, false);
    for (const JournalFrame& each : frames_of(taken.journal, 1)) route(again, each.frame, true);
    CHECK(again.next_d() == log.next_d() && again.topics().get(2).next_ordinal == 4);
    CHECK((TopicTable::sequences(again.topics().get(1)) == Sequences{{"p", 7}}));

    const std::string plain = frame({publish(2, 1, 0, "p", {{0, 1, "x"}}), event(20, 1, "e")});
    log.begin(bytes_of(plain), 9, 2, false);
    CHECK(log.step().has_value());
    CHECK_ERROR(Code::misuse, log.judge(), "to an exchange");
    CHECK_ERROR(Code::misuse, log.take(), "to an exchange");
    CHECK(!log.step());
    log.finish(true);
}

// Just before the last numbers: a frame that might need one more is refused as a whole. Of a topic,
// only the publish is refused.
static void test_ends() {
    const std::string one = frame({publish(1, 1, 0, "p", {{0, 1, "x"}})});
    constexpr u64 last = kNumberMax - (u64{1} << 32);
    for (const auto& [d, ledger] : {std::pair{last, u64{1}}, std::pair{u64{1}, last}}) {
        Log log(d, ledger, 0);
        with_topic(log);
        CHECK(run(log, one).published[0].code == PublishCode::ok);
        CHECK_ERROR(Code::exhausted, log.begin(bytes_of(one), 9, 2, false), "63 bits of");
        CHECK(log.next_d() == d + 1 && log.next_ledger == ledger + 1);
    }
    Log log;
    log.topics().add(1, kNumberMax - 1, false);
    log.topics().open_session(1, 1, "p", 0);
    CHECK(run(log, one).published[0].ordinal == kNumberMax - 1);
    CHECK(run(log, one).published[0].code == PublishCode::full);
    CHECK(log.topics().get(1).next_ordinal == kNumberMax);
}

static void test_filtered() {
    Log log;
    with_topic(log, true);
    const std::vector<std::string> events = {
        event(20, 1, "one"),  // D 1
        event(21, 1, "not durable"),
        publish(1, 1, 0, "p", {{4, 1, "e"}}),      // D 2
        publish(1, 1, 0, "p", {{4, 1, "again"}}),  // a duplicate
        publish(8, 1, 0, "p", {{5, 1, "lost"}}),   // no such topic
        event(22, 3, "f"),                         // D 3
        event(20, 1, ""),                          // D 4
    };
    const Applied applied = run(log, frame(events, 50));
    CHECK(applied.first_d == 1 && applied.last_d == 4 && applied.published.size() == 3);
    CHECK(run(log, frame({event(21, 1, "")}, 60)).first_d == 0);  // not kept: log time stays
    const Applied last = run(log, frame({event(20, 1, "two")}, 45), 3);
    CHECK(last.first_d == 5 && last.last_d == 5);
    const Taken round = take(log);
    const auto frames = frames_of(round.journal, 1);
    CHECK(frames.size() == 2);
    CHECK(frames[0].frame == frame({events[0], events[2], events[5], events[6]}, 50));
    CHECK(frames[1].frame == frame({event(20, 1, "two")}, 50) && frames[1].first_d == 5 &&
          frames[1].index == 3);
    CHECK((round.entries() == std::vector<std::string>{"e", "f"}));
}

// Random frames; the journal's frames, redone on a fresh log, give the same ledgers, Ds and sequences.
static void test_redo() {
    Log log, redo;
    u64 seed = 12345;
    const auto random = [&seed](u64 below) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        return (seed >> 33) % below;
    };
    for (Log* each : {&log, &redo}) {
        for (u64 topic = 1; topic <= 5; ++topic) each->topics().add(topic, 0, topic % 2 == 1);
    }
    for (u64 topic = 1; topic <= 5; ++topic) log.topics().open_session(topic, topic, "p", 0);
    u64 d = 1;
    for (int i = 0; i < 400; ++i) {
        std::vector<std::string> events;
        for (u64 n = random(6); n > 0; --n) {
            const u64 topic = 1 + random(6);  // 6 does not exist
            std::vector<Entry> entries;
            for (u64 m = 1 + random(8); m > 0; --m)
                entries.push_back({static_cast<std::int64_t>(random(600)),
                                   static_cast<u32>(random(3)),
                                   std::string(random(300), static_cast<char>('a' + random(26)))});
            events.push_back(random(4) == 0 ? event(static_cast<u8>(20 + random(3)), 1, "body")
                                            : publish(topic, topic, 0, "p", entries));
        }
        run(log, frame(events, 100 + random(900)), static_cast<u64>(i) + 1, false, random(2) == 0);
        if (random(5) != 0) continue;
        const Taken first = take(log);
        for (const JournalFrame& each : frames_of(first.journal, d)) {
            redo.begin(bytes_of(each.frame), each.view, each.index, true);
            while (const auto event = redo.step()) {
                if (event->kind == 22) redo.append(1, std::vector<Bytes>{event->body});
                redo.accept();
            }
            redo.finish(true);
            CHECK(redo.time() == each.time);
        }
        d = log.next_d();
        CHECK(redo.next_d() == d && redo.next_ledger == log.next_ledger);
        const Taken second = take(redo);
        CHECK(second.journal.empty() && second.first_d == 0);
        CHECK(first.last_d == 0 || second.settled_d == first.last_d);
        CHECK(first.writes.size() == second.writes.size());
        for (std::size_t w = 0; w < first.writes.size(); ++w) {
            CHECK(first.writes[w].first == second.writes[w].first);
            CHECK(first.writes[w].second.data == second.writes[w].second.data);
            CHECK(first.writes[w].second.index == second.writes[w].second.index);
            CHECK(first.writes[w].second.offset == second.writes[w].second.offset);
        }
        for (u64 topic = 1; topic <= 5; ++topic)
            CHECK(TopicTable::sequences(log.topics().get(topic)) ==
                  TopicTable::sequences(redo.topics().get(topic)));
    }
    CHECK(d > 400);
    CHECK_ERROR(Code::corrupt, run(redo, frame({publish(6, 1, 0, "p", {{0, 1, ""}})}), 1, true),
                "topic 6");
}

static void test_ledgers() {
    Log log(11, 40, 5);
    log.topics().add(1, 7, false);
    log.topics().open_session(1, 1, "p", 0);
    CHECK_ERROR(Code::misuse, log.open_ledger(1, 3, 4, 4, 200), "ordinal 7");
    log.open_ledger(1, 3, 4, 3, 200);
    CHECK_ERROR(Code::misuse, log.open_ledger(1, 3, 4, 3, 200), "ledger 3 open");
    const std::string one = publish(1, 1, 0, "p", {{0, 1, "a"}});
    const std::string text = frame({one, event(20, 1, ""), one, event(20, 1, ""), one});
    log.begin(bytes_of(text), 1, 1, false);
    CHECK(log.step().has_value());
    CHECK(log.topics().get(1).next_ordinal == 8);  // handlers see the effects of the frame so far
    log.seal_ledger(1);
    log.seal_ledger(1);
    log.accept();
    CHECK(log.step().has_value());
    log.accept();
    CHECK(!log.step());
    const Applied applied = log.finish(false);
    CHECK(applied.first_d == 11 && applied.last_d == 15);
    CHECK(applied.opened.size() == 1 && applied.opened[0].ledger == 40 &&
          applied.opened[0].first_ordinal == 8);
    CHECK(applied.tails.size() == 2);
    CHECK(applied.tails[0].ledger == 3 && applied.tails[0].entries == 4 &&
          applied.tails[0].size == 240 && applied.tails[0].end_ordinal == 8);
    CHECK(applied.tails[1].ledger == 40 && applied.tails[1].entries == 2 &&
          applied.tails[1].end_ordinal == 10);
    const Taken round = take(log);
    CHECK(!round.urgent && round.writes.size() == 2);
    CHECK(round.writes[0].first == 3 && round.writes[0].second.offset == 200 &&
          round.writes[0].second.first_entry == 3);
    CHECK(round.entries(0).size() == 1 && round.entries(1).size() == 2);
}

static void test_adopt() {
    Log log;
    with_topic(log);
    log.topics().add(2, 0, false);
    log.topics().open_session(2, 2, "p", 0);
    run(log, frame({publish(1, 1, 0, "p", {{0, 1, "a"}}),
                    publish(2, 2, 0, "p", {{0, 1, "b"}, {1, 1, "c"}})}));
    const std::string text =
        frame({event(20, 1, ""), publish(1, 1, 0, "p", {{1, 1, "d"}}), event(20, 1, "")});
    log.begin(bytes_of(text), 1, 1, false);
    CHECK(log.step().has_value());
    const Adopted adopted = log.adopt(1, 2);
    CHECK(adopted.ledger == 2 && adopted.first_ordinal == 1 && adopted.entries == 2 &&
          adopted.size == 64 + 80);
    log.accept();
    CHECK(log.step().has_value());
    CHECK_ERROR(Code::misuse, log.adopt(1, 2), "single, open ledger");
    CHECK_ERROR(Code::misuse, log.adopt(1, 1), "single, open ledger");
    log.accept();
    CHECK(!log.step());
    const Applied applied = log.finish(true);
    CHECK(applied.published[0].ledger == 3 && applied.published[0].ordinal == 3 &&
          applied.published[0].entry == 0);
    CHECK(log.topics().get(2).ledger == 0 && log.topics().get(1).next_ordinal == 4);
}

static void test_misuse() {
    Log log;
    with_topic(log);
    const std::string entry = "x";
    const std::vector<Bytes> entries{bytes_of(entry)};
    CHECK_ERROR(Code::misuse, log.step(), "begin");
    CHECK_ERROR(Code::misuse, log.finish(true), "begin");
    CHECK_ERROR(Code::misuse, log.append(1, entries), "begin");
    CHECK_ERROR(Code::corrupt, run(log, "no frame"), "nothing of it");
    const std::string text = frame({event(20, 1, ""), event(20, 1, "")});
    log.begin(bytes_of(text), 1, 1, false);
    CHECK_ERROR(Code::misuse, log.begin(bytes_of(text), 1, 1, false), "finish");
    CHECK_ERROR(Code::misuse, log.accept(), "step");
    CHECK_ERROR(Code::misuse, log.finish(true), "events left");
    CHECK(log.step().has_value());
    log.accept();
    CHECK_ERROR(Code::misuse, log.accept(), "accepted already");
    CHECK(log.step().has_value());
    log.append(1, entries);
    CHECK_ERROR(Code::misuse, log.step(), "was not accepted");
    log.accept();
    CHECK(!log.step());
    CHECK(log.finish(true).last_d == 2);
    CHECK_ERROR(Code::misuse, Log(0), "begin at 1");
}

// Larger than chunks, many topics, many small frames: the bytes do not depend on the chunks.
static void test_sizes() {
    Log log;
    for (u64 topic = 1; topic <= 50; ++topic) {
        log.topics().add(topic, 0, false);
        log.topics().open_session(topic, topic, "p", 0);
    }
    std::vector<std::vector<std::string>> sent(51);
    for (int i = 0; i < 300; ++i) {
        const u64 topic = 1 + static_cast<u64>(i) % 50;
        const std::size_t size = i == 70      ? 3 * kChunkSize + 5
                                 : i % 7 == 0 ? 40'000
                                              : static_cast<std::size_t>(i);
        sent[topic].emplace_back(size, static_cast<char>(i));
        run(log, frame({publish(topic, topic, 0, "p", {{i, 1, sent[topic].back()}})}), 1, false,
            i == 200);
    }
    const Taken round = take(log);
    CHECK(round.urgent && round.first_d == 1 && round.last_d == 300);
    CHECK(frames_of(round.journal, 1).size() == 300);
    CHECK(round.writes.size() == 50);
    for (std::size_t i = 0; i < 50; ++i) CHECK(round.entries(i) == sent[round.writes[i].first]);
}

// Log time moves only with frames that leave something in the journal; a repair sets it back.
static void test_time() {
    Log log;
    with_topic(log, true);
    run(log, frame({event(20, 1, "kept")}, 10));
    CHECK(log.time() == 10);
    CHECK(run(log, frame({event(21, 1, "refused")}, 99), 2).first_d == 0 && log.time() == 10);
    CHECK(run(log, frame({publish(8, 1, 0, "p", {{0, 1, "no topic"}})}, 99), 3).first_d == 0);
    CHECK(log.time() == 10);
    run(log, frame({publish(1, 1, 0, "p", {{0, 1, "new"}})}, 20), 4);
    CHECK(log.time() == 20);
    CHECK(run(log, frame({publish(1, 1, 0, "p", {{0, 1, "again"}})}, 99), 5).first_d == 0);
    CHECK(log.time() == 20);
    run(log, frame({event(21, 1, "refused"), event(20, 1, "kept")}, 30), 6);
    CHECK(log.time() == 30);
    run(log, frame({event(20, 1, "kept")}, 5), 7);
    CHECK(log.time() == 30);
    const std::string repair = frame({event(20, 1, "repair")}, 31);
    log.begin(bytes_of(repair), 9, 8, false);
    log.step();
    CHECK_ERROR(Code::misuse, log.set_time(32), "backward only");
    log.set_time(12);
    log.accept();
    CHECK(!log.step());
    log.finish(true);
    CHECK(log.time() == 12);
    const auto known = TopicTable::sequence_times(log.topics().get(1));
    CHECK(known.size() == 1 && std::get<2>(known[0]) == 12);
    CHECK(TopicTable::forget_older(log.topics().get(1), 100) == 0);  // its session is open
    log.topics().close_session(1, 13);
    CHECK(TopicTable::forget_older(log.topics().get(1), 13) == 0);
    CHECK(TopicTable::forget_older(log.topics().get(1), 14) == 1);
    CHECK(TopicTable::sequences(log.topics().get(1)).empty());
}

// Counters for metrics wrap, as after a restart; nothing else changes.
static void test_traffic_wraps() {
    Traffic traffic;
    traffic.bytes = ~u64{0} - 9;
    traffic.sizes.fill(~u64{0});
    traffic.add(10);
    CHECK(traffic.bytes == 0 && traffic.sizes[0] == 0 && traffic.sizes[1] == ~u64{0});
    Traffic other;
    other.add(1 << 20);
    other.add((1 << 20) + 1);
    traffic.add(other);
    CHECK(traffic.bytes == (2 << 20) + 1 && traffic.sizes[7] == 0 && traffic.sizes[8] == 0);
}

int main() {
    test_traffic_wraps();
    test_time();
    test_publish();
    test_duplicates();
    test_always_deduplicated();
    test_refusals();
    test_routed();
    test_ends();
    test_filtered();
    test_redo();
    test_ledgers();
    test_adopt();
    test_misuse();
    test_sizes();
}
