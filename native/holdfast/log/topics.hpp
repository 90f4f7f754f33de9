// The log's state of each topic: its tail, the sessions that may publish, and the last sequences.
//
// Sessions are ordered but not journaled: after a restart there are none. The last sequence of each
// producer follows from the publishes themselves, so it is the same after every redo.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

// Ids and positions have 63 bits: programs that read them have 64 with a sign, and use -1 for none.
inline constexpr u64 kNumberMax = ~u64{0} >> 1;

struct Producer {
    std::int64_t last = -1;  // the highest published sequence; -1: not known
    u64 time = 0;            // log time of its last publish, or of the end of its last session
    u64 epoch = 0;           // the highest of its open sessions
    u32 sessions = 0;
};

struct StringHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
        return std::hash<std::string_view>{}(text);
    }
};

// Counts of publishes to a topic since the log was created, for metrics. A redo does not count.
struct Traffic {
    // The upper ends, in bytes, of the classes of entry sizes: those of the metrics' names.
    static constexpr std::array<u32, 8> kSizes{128,     512,      1 << 10,   2 << 10,
                                               4 << 10, 16 << 10, 100 << 10, 1 << 20};

    u64 bytes = 0;
    std::array<u64, kSizes.size() + 1> sizes{};  // entries by size; the last: larger than all

    void add(u32 size) {
        bytes += size;
        std::size_t at = 0;
        while (at < kSizes.size() && size > kSizes[at]) ++at;
        ++sizes[at];
    }

    void add(const Traffic& other) {
        bytes += other.bytes;
        for (std::size_t at = 0; at < sizes.size(); ++at) sizes[at] += other.sizes[at];
    }
};

// Segments of local ingest publish under this name and their own identity; the sequence is a
// position in the segment. Under every policy of the topic, each of their messages is stored once.
inline bool always_deduplicated(std::string_view producer) {
    return producer.starts_with("holdfast.ingest.");
}

struct Topic {
    u64 id = 0;
    u64 next_ordinal = 0;
    u64 ledger = 0;  // the open ledger; 0: the next entry opens one
    u64 first_ordinal = 0;
    u64 entries = 0;
    u64 size = 0;     // of its data file
    u64 touched = 0;  // the number of the frame that appended last to the open ledger
    bool deduplicate = false;
    bool closed = false;
    bool routed = false;  // an exchange: its publishes go to other topics, which the caller chooses
    Traffic traffic;
    std::unordered_map<std::string, Producer, StringHash, std::equal_to<>> producers;

    bool has_room(u64 entries) const {
        return entries <= kNumberMax && next_ordinal <= kNumberMax - entries;
    }

    Producer& producer(std::string_view name) {
        auto found = producers.find(name);
        if (found == producers.end())
            found = producers.emplace(std::string(name), Producer{}).first;
        return found->second;
    }
};

struct Session {
    u64 topic;
    u64 epoch;
    std::string producer;
};

class TopicTable {
 public:
    Topic* find(u64 id) {
        // neighbouring events often have the same topic
        if (last_ != nullptr && last_->id == id) return last_;
        const auto found = topics_.find(id);
        if (found == topics_.end()) return nullptr;
        return last_ = &found->second;
    }

    Topic& get(u64 id) {
        if (Topic* topic = find(id)) return *topic;
        throw Error(Code::misuse, "topic " + std::to_string(id) +
                                      " is not known to the log; call add_topic() first");
    }

    void add(u64 id, u64 next_ordinal, bool deduplicate) {
        const auto [place, added] = topics_.try_emplace(id);
        if (!added)
            throw Error(Code::misuse, "topic " + std::to_string(id) +
                                          " is known to the log already; ids are never used again");
        place->second.id = id;
        place->second.next_ordinal = next_ordinal;
        place->second.deduplicate = deduplicate;
    }

    void remove(u64 id) {
        get(id);
        last_ = nullptr;
        topics_.erase(id);
        std::erase_if(sessions_, [id](const auto& each) { return each.second.topic == id; });
    }

    // Without deduplication only the open sessions of a producer are kept. Local ingest is always
    // deduplicated: its positions stay.
    void set_deduplicate(Topic& topic, bool on) {
        topic.deduplicate = on;
        if (on) return;
        for (auto& [name, producer] : topic.producers)
            if (!always_deduplicated(name)) producer.last = -1;
        std::erase_if(topic.producers, [](const auto& each) {
            return each.second.sessions == 0 && each.second.last < 0;
        });
    }

    std::int64_t open_session(u64 session, u64 topic_id, std::string_view name, u64 epoch) {
        Topic& topic = get(topic_id);
        if (sessions_.contains(session))
            throw Error(Code::misuse, "session " + std::to_string(session) +
                                          " is open already; ids are never used again");
        sessions_.emplace(session, Session{topic_id, epoch, std::string(name)});
        Producer& producer = topic.producer(name);
        ++producer.sessions;
        producer.epoch = std::max(producer.epoch, epoch);
        return producer.last;
    }

    void close_session(u64 session, u64 time = 0) {
        const auto found = sessions_.find(session);
        if (found == sessions_.end()) return;
        Topic& topic = get(found->second.topic);
        const auto producer = topic.producers.find(std::string_view(found->second.producer));
        sessions_.erase(found);
        if (--producer->second.sessions > 0) return;
        producer->second.epoch = 0;
        producer->second.time = std::max(producer->second.time, time);
        if (producer->second.last < 0) topic.producers.erase(producer);
    }

    // Decides whether this publish may be applied. A newer session of the same name fences those of
    // older epochs.
    bool accepts(const Topic& topic, u64 session, u64 epoch, std::string_view name) const {
        const auto found = sessions_.find(session);
        if (found == sessions_.end()) return false;
        const Session& open = found->second;
        if (open.topic != topic.id || open.epoch != epoch || open.producer != name) return false;
        return epoch >= topic.producers.find(name)->second.epoch;
    }

    static std::vector<std::pair<std::string, std::int64_t>> sequences(const Topic& topic) {
        std::vector<std::pair<std::string, std::int64_t>> out;
        for (const auto& [name, producer] : topic.producers) {
            if (producer.last >= 0) out.emplace_back(name, producer.last);
        }
        std::sort(out.begin(), out.end());
        return out;
    }

    // As sequences(), each with the log time of its last use.
    static std::vector<std::tuple<std::string, std::int64_t, u64>> sequence_times(
        const Topic& topic) {
        std::vector<std::tuple<std::string, std::int64_t, u64>> out;
        for (const auto& [name, producer] : topic.producers) {
            if (producer.last >= 0) out.emplace_back(name, producer.last, producer.time);
        }
        std::sort(out.begin(), out.end());
        return out;
    }

    // Removes producers without a session that were last used before a time. Local ingest removes
    // its own.
    static u64 forget_older(Topic& topic, u64 time) {
        return std::erase_if(topic.producers, [time](const auto& each) {
            return each.second.sessions == 0 && each.second.time < time &&
                   !always_deduplicated(each.first);
        });
    }

    // No time is later than this.
    void limit_times(u64 time) {
        for (auto& [id, topic] : topics_)
            for (auto& [name, producer] : topic.producers)
                producer.time = std::min(producer.time, time);
    }

    static bool forget_sequence(Topic& topic, std::string_view name) {
        const auto found = topic.producers.find(name);
        if (found == topic.producers.end() || found->second.last < 0) return false;
        found->second.last = -1;
        if (found->second.sessions == 0) topic.producers.erase(found);
        return true;
    }

 private:
    std::unordered_map<u64, Topic> topics_;
    std::unordered_map<u64, Session> sessions_;
    Topic* last_ = nullptr;
};

}  // namespace holdfast
