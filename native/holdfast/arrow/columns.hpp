// Decodes entries of ledgers into Arrow columns: one row per message, and only the wanted columns.
//
// A decoder takes runs of entries, whose blocks were checked (I70), and checks each entry's own
// sum. It stops where it needs help from its caller, and then goes on with the same entry. A
// compressed batch needs its payload (expand), a part of a chunked message needs the others, an
// entry that is not sound needs a decision. It also stops when a batch of rows is full. That can be
// within a client's batch, which goes on behind it.
//
// No size from outside decides how much memory is taken: a batch of rows ends at `rows_max` or
// `bytes_max`, plus one message.
#pragma once

#include <array>
#include <charconv>
#include <cstring>
#include <deque>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "holdfast/arrow/arrays.hpp"
#include "holdfast/base/base64.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/entry/run.hpp"

namespace holdfast {

enum class Column : u32 {
    key,
    value,
    topic,
    partition,
    message_id,
    publish_time,
    event_time,
    producer,
    sequence,
    properties,
    position,
    encryption,
    corrupt,
    key_encoding,
    ordering_key,
    stored_time,
    unique_id,
    deliver_at,
    schema_version,
};  // the order of kColumnNames
inline constexpr std::array<std::string_view, 19> kColumnNames = {
    "key",         "value",      "topic",     "partition",    "messageId",
    "publishTime", "eventTime",  "producer",  "sequenceId",   "properties",
    "position",    "encryption", "corrupt",   "keyEncoding",  "orderingKey",
    "storedTime",  "uniqueId",   "deliverAt", "schemaVersion"};

inline constexpr i64 kNoTime = std::numeric_limits<i64>::min();

// Microseconds since the epoch; kNoTime beyond the year 9999, which no producer means.
inline i64 microseconds(u64 ms) {
    constexpr u64 kEnd = 253'402'300'800'000;
    return ms < kEnd ? static_cast<i64>(ms) * 1000 : kNoTime;
}

inline constexpr i64 kNoVersion = -1;

// The number of a schema: eight bytes, big-endian. kNoVersion: none, or another form.
inline i64 schema_number(std::string_view bytes) {
    if (bytes.size() != sizeof(u64)) return kNoVersion;
    u64 number;
    std::memcpy(&number, bytes.data(), sizeof number);
    const auto found = static_cast<i64>(__builtin_bswap64(number));
    return found < 0 ? kNoVersion : found;
}

// Rows to leave out. The filter is exact: the caller does not filter again.
struct RowFilter {
    i64 publish_min_us = kNoTime;  // kNoTime: all, also those without a time
    i64 publish_max_us = std::numeric_limits<i64>::max();
    bool by_key = false;
    std::set<std::string, std::less<>> keys;

    bool by_time() const {
        return publish_min_us != kNoTime || publish_max_us != std::numeric_limits<i64>::max();
    }
    bool passes_time(i64 us) const {
        return !by_time() || (us != kNoTime && us >= publish_min_us && us <= publish_max_us);
    }
};

// The buffers of one batch of rows. The arrays made of it keep it.
class ColumnData {
 public:
    explicit ColumnData(std::shared_ptr<BufferPool> from) : pool(std::move(from)) {}
    ColumnData(const ColumnData&) = delete;
    ~ColumnData() {
        for (BytesColumn* each :
             {&key, &value, &topic, &producer, &property_names, &property_values, &encryption,
              &corrupt, &key_encoding, &ordering_key, &unique_id}) {
            pool->put(std::move(each->data()));
            pool->put(std::move(each->offsets()));
        }
        for (auto* each : {&ledger, &entry, &publish_time, &event_time, &sequence, &position,
                           &stored_time, &deliver_at, &schema_version})
            pool->put(std::move(each->values()));
        for (auto* each : {&partition, &batch_index, &property_ends})
            pool->put(std::move(each->values()));
    }

    std::shared_ptr<BufferPool> pool;
    std::size_t rows = 0;
    BytesColumn key, value, topic, producer, property_names, property_values, encryption, corrupt,
        key_encoding, ordering_key, unique_id;
    FixedColumn<i64> ledger, entry, publish_time, event_time, sequence, position, stored_time,
        deliver_at, schema_version;
    FixedColumn<i32> partition, batch_index, property_ends;  // property_ends: offsets of the map
    std::vector<Column> columns;

    // Returns the columns as one struct array: a record batch.
    ArrayNode node() {
        ArrayNode out{"", "+s", static_cast<i64>(rows), 0, {nullptr}, {}, false};
        for (const Column column : columns) out.children.push_back(child(column));
        return out;
    }

 private:
    ArrayNode child(Column column) {
        using namespace arrow_export;
        std::string name(kColumnNames[static_cast<std::size_t>(column)]);
        switch (column) {
            case Column::key:
                return bytes(name, "z", key);
            case Column::value:
                return bytes(name, "z", value);
            case Column::topic:
                return bytes(name, "u", topic);
            case Column::partition:
                return fixed(name, "i", partition);
            case Column::message_id: {
                ArrayNode out{name, "+s", static_cast<i64>(rows), 0, {nullptr}, {}};
                out.children = {fixed("ledger", "l", ledger), fixed("entry", "l", entry),
                                fixed("batchIndex", "i", batch_index)};
                return out;
            }
            case Column::publish_time:
                return fixed(name, "tsu:UTC", publish_time);
            case Column::event_time:
                return fixed(name, "tsu:UTC", event_time);
            case Column::producer:
                return bytes(name, "u", producer);
            case Column::sequence:
                return fixed(name, "l", sequence);
            case Column::properties:
                return map(name);
            case Column::position:
                return fixed(name, "l", position);
            case Column::encryption:
                return bytes(name, "z", encryption);
            case Column::key_encoding:
                return bytes(name, "u", key_encoding);
            case Column::ordering_key:
                return bytes(name, "z", ordering_key);
            case Column::stored_time:
                return fixed(name, "tsu:UTC", stored_time);
            case Column::unique_id:
                return bytes(name, "u", unique_id);
            case Column::deliver_at:
                return fixed(name, "tsu:UTC", deliver_at);
            case Column::schema_version:
                return fixed(name, "l", schema_version);
            case Column::corrupt:
                break;
        }
        return bytes(name, "u", corrupt);
    }

    ArrayNode map(const std::string& name) {
        using namespace arrow_export;
        ArrayNode pairs{"entries", "+s", 0, 0, {nullptr}, {}, false};
        pairs.children = {bytes("key", "u", property_names), bytes("value", "u", property_values)};
        pairs.children[0].nullable = false;
        pairs.length = pairs.children[0].length;
        ArrayNode out{name, "+m", static_cast<i64>(rows), 0, {}, {}};
        out.nulls = static_cast<i64>(property_ends.validity().nulls());
        out.buffers = {property_ends.validity().data(), values(property_ends.values())};
        out.children.push_back(std::move(pairs));
        return out;
    }
};

struct ColumnLimits {
    std::size_t rows_max = std::size_t{1} << 16;
    std::size_t bytes_max = std::size_t{4} << 20;
    u64 offset_max = std::numeric_limits<i32>::max();  // no column has more bytes
};

// Why a decoder stopped.
enum class Stop { end, full, compressed, chunk, unsound };

class ColumnDecoder {
 public:
    ColumnDecoder(std::vector<Column> columns, std::string topic, i32 partition, RowFilter filter,
                  ColumnLimits limits)
        : columns_(std::move(columns)),
          topic_(std::move(topic)),
          partition_(partition),
          filter_(std::move(filter)),
          limits_{
              std::min(limits.rows_max, kTopicBytesMax / std::max<std::size_t>(1, topic_.size())),
              limits.bytes_max, limits.offset_max} {
        for (const Column each : columns_) wanted_ |= bit(each);
        begin();
    }

    std::size_t rows() const { return out_->rows; }
    // The batch of rows must be finished before anything else is put into it.
    bool full() const { return out_->rows >= limits_.rows_max || bytes_ >= limits_.bytes_max; }

    // Takes entries of the run from `at` on, and moves `at` behind them. `end`: the run is done.
    Stop take(const EntryRun& run, std::size_t& at) {
        for (; at < run.count(); ++at) {
            if (full()) return Stop::full;
            if (const Stop stop = take_entry(run, at); stop != Stop::end) return stop;
        }
        return Stop::end;
    }

    // Passes the payload of the entry at which take() stopped, uncompressed. Call take() again at
    // the same entry.
    void expand(u64 ordinal, std::string_view payload) {
        if (walk_.ordinal != kNone)
            throw Error(Code::misuse, "a batch is being decoded: take its messages first");
        expanded_.clear(kKeep);
        expanded_.append(payload);
        expanded_for_ = ordinal;
    }

    // The damage of the entry at which take() stopped.
    std::string_view fault() const { return fault_; }

    // Adds a row that says only that an entry is damaged.
    void push_corrupt(u64 ledger, u64 entry, u64 ordinal, std::string_view words) {
        const std::size_t row = out_->rows++;
        if (wants(Column::key)) out_->key.push(row, {}, false);
        if (wants(Column::value)) out_->value.push(row, {}, false);
        if (wants(Column::publish_time)) out_->publish_time.push(row, 0, false);
        if (wants(Column::event_time)) out_->event_time.push(row, 0, false);
        if (wants(Column::producer)) out_->producer.push(row, {}, false);
        if (wants(Column::sequence)) out_->sequence.push(row, 0, false);
        if (wants(Column::properties)) close_map(row, false);
        if (wants(Column::encryption)) out_->encryption.push(row, {}, false);
        if (wants(Column::key_encoding)) out_->key_encoding.push(row, {}, false);
        if (wants(Column::ordering_key)) out_->ordering_key.push(row, {}, false);
        if (wants(Column::stored_time)) out_->stored_time.push(row, 0, false);
        if (wants(Column::deliver_at)) out_->deliver_at.push(row, 0, false);
        if (wants(Column::schema_version)) out_->schema_version.push(row, 0, false);
        push_place(row, ledger, entry, -1, ordinal);
        if (wants(Column::corrupt)) {
            utf8::append(out_->corrupt.data(), words);
            out_->corrupt.close(row);
            bytes_ += words.size();
        }
    }

    // Returns all rows since the last call.
    std::shared_ptr<ColumnData> finish() {
        if (wants(Column::topic)) out_->topic.data().reserve(out_->rows * topic_.size());
        for (std::size_t row = 0; row < out_->rows && wants(Column::topic); ++row)
            out_->topic.push(row, topic_);
        for (std::size_t row = 0; row < out_->rows && wants(Column::partition); ++row)
            out_->partition.push(row, partition_);
        // The next batch will be like this one; memory beyond that is lost to other uses.
        rows_ = std::min(limits_.rows_max,
                         std::max<std::size_t>(kRowsFew, out_->rows + out_->rows / 8));
        std::shared_ptr<ColumnData> made = std::move(out_);
        begin();
        return made;
    }

 private:
    static constexpr std::size_t kKeep = std::size_t{4} << 20;
    static constexpr u64 kNone = ~u64{0};
    static constexpr u32 kPartsMax = 4096;
    static constexpr std::size_t kRowsFew = 4096;

    // One pool for all decoders of the process, because warm memory is worth keeping.
    static const std::shared_ptr<BufferPool>& shared_pool() {
        static const auto pool = std::make_shared<BufferPool>(std::size_t{32} << 20);
        return pool;
    }
    static constexpr std::size_t kTopicBytesMax = std::size_t{1} << 30;
    static constexpr std::string_view kTooLong = "it is too long for a row";

    static constexpr u32 bit(Column column) { return u32{1} << static_cast<u32>(column); }
    bool wants(Column column) const { return wanted_ & bit(column); }

    void begin() {
        out_ = std::make_shared<ColumnData>(pool_);
        out_->columns = columns_;
        const std::size_t rows = rows_, few = 4096;
        const auto open = [&](Column column, BytesColumn& to, std::size_t bytes) {
            to.begin(*pool_, wants(column) ? rows : 0, wants(column) ? bytes : 0);
        };
        open(Column::key, out_->key, few);
        open(Column::value, out_->value, limits_.bytes_max + limits_.bytes_max / 8);
        open(Column::topic, out_->topic, few);
        open(Column::producer, out_->producer, few);
        open(Column::properties, out_->property_names, few);
        open(Column::properties, out_->property_values, few);
        open(Column::encryption, out_->encryption, 0);
        open(Column::corrupt, out_->corrupt, 0);
        open(Column::key_encoding, out_->key_encoding, 0);
        open(Column::ordering_key, out_->ordering_key, 0);
        open(Column::unique_id, out_->unique_id, few);
        const auto fix = [&](Column column, auto& to, std::size_t width) {
            if (wants(column)) to.values() = pool_->get(width * (rows + 1));
        };
        fix(Column::message_id, out_->ledger, 8);
        fix(Column::message_id, out_->entry, 8);
        fix(Column::message_id, out_->batch_index, 4);
        fix(Column::publish_time, out_->publish_time, 8);
        fix(Column::event_time, out_->event_time, 8);
        fix(Column::sequence, out_->sequence, 8);
        fix(Column::position, out_->position, 8);
        fix(Column::stored_time, out_->stored_time, 8);
        fix(Column::deliver_at, out_->deliver_at, 8);
        fix(Column::schema_version, out_->schema_version, 8);
        fix(Column::partition, out_->partition, 4);
        fix(Column::properties, out_->property_ends, 4);
        const i32 zero = 0;
        out_->property_ends.values().append(&zero, 4);
        bytes_ = 0;
    }

    Stop unsound(std::string_view why) {
        fault_ = why;
        return Stop::unsound;
    }
    Stop unsound(EntryFault fault) { return unsound(fault_name(fault)); }

    Stop take_entry(const EntryRun& run, std::size_t at) {
        const u64 ordinal = run.first_ordinal() + at;
        // the batch of rows was full within this entry
        if (walk_.ordinal == ordinal) return take_batch(run, at);
        if (run.slot(at).gap()) return Stop::end;
        const std::string_view bytes = run.bytes(at);
        std::string_view metadata, payload;
        if (const auto fault = read_frame(bytes, metadata, payload); fault != EntryFault::none)
            return unsound(fault);
        if (!sum_is_right(bytes)) return unsound(EntryFault::crc);
        std::construct_at(&walk_.metadata);  // in place: assigning a new one copies it
        if (const auto fault = read_metadata(metadata, walk_.metadata); fault != EntryFault::none)
            return unsound(fault);
        const EntryMetadata& fields = walk_.metadata;
        // of any content: passed on unchanged, with the fields that its reader needs
        if (fields.encrypted) {
            if (!fits(metadata, payload)) return unsound(kTooLong);
            push_message(run, at, fields, metadata, metadata_field::properties, payload, -1,
                         metadata);
            return Stop::end;
        }
        if (expanded_for_ == ordinal)
            payload = expanded_.view();
        else if (fields.chunks > 1)
            return Stop::chunk;
        else if (fields.compression != 0)
            return Stop::compressed;
        if (!fields.batch || fields.chunks > 1) {
            if (!fits(metadata, payload)) return unsound(kTooLong);
            push_message(run, at, fields, metadata, metadata_field::properties, payload, -1, {});
            expanded_for_ = kNone;
            return Stop::end;
        }
        if (const auto fault = open_batch(payload); fault != EntryFault::none)
            return unsound(fault);
        walk_.ordinal = ordinal;
        walk_.run = run;  // the bytes that the views point into stay
        return take_batch(run, at);
    }

    // Walks through the whole batch before its first row is made: either all its messages are
    // sound, or it is damaged. Messages of small batches are kept, so that this is done once.
    EntryFault open_batch(std::string_view payload) {
        const u32 messages = walk_.metadata.messages;
        if (messages > payload.size() / 4) return EntryFault::count;
        walk_.index = 0;
        walk_.parts.clear();
        walk_.reader = BatchReader(payload);
        BatchReader reader(payload);
        BatchPart part;
        for (u32 i = 0; i < messages; ++i) {
            BatchPart& to = messages <= kPartsMax ? walk_.parts.emplace_back() : part;
            if (!reader.next(to)) return EntryFault::batch;
        }
        return EntryFault::none;
    }

    Stop take_batch(const EntryRun& run, std::size_t at) {
        BatchPart read;
        for (; walk_.index < walk_.metadata.messages; ++walk_.index) {
            if (full()) return Stop::full;
            if (walk_.parts.empty() && !walk_.reader.next(read)) break;  // not possible: see above
            BatchPart& part = walk_.parts.empty() ? read : walk_.parts[walk_.index];
            if (part.fields.compacted_out) continue;
            if (!fits(part.metadata, part.payload)) return refuse_batch();
            if (!part.fields.has_sequence)
                part.fields.sequence =
                    static_cast<i64>(static_cast<u64>(walk_.metadata.sequence) + walk_.index);
            push_message(run, at, part.fields, part.metadata, single_field::properties,
                         part.payload, static_cast<i32>(walk_.index), {});
        }
        close_batch();
        return Stop::end;
    }

    void close_batch() {
        walk_.ordinal = expanded_for_ = kNone;
        walk_.run.reset();
    }

    Stop refuse_batch() {
        close_batch();
        return unsound(kTooLong);
    }

    // A row's bytes, and those that are there already, must stay below what 32 bits can count.
    bool fits(std::string_view metadata, std::string_view payload) const {
        const u64 text = u64{metadata.size()} + walk_.metadata.producer.size();
        return 3 * text + payload.size() + 3 * bytes_ < limits_.offset_max;
    }

    // The key as its producer set it.
    std::string_view key_of(const MessageFields& fields) {
        if (fields.key_base64 && from_base64(fields.partition_key, key_)) return key_;
        return fields.partition_key;
    }

    void push_message(const EntryRun& run, std::size_t at, const MessageFields& fields,
                      std::string_view metadata, u32 properties, std::string_view payload,
                      i32 batch_index, std::string_view encryption) {
        const bool has_key = fields.has_key && !fields.null_key;
        const i64 published = microseconds(walk_.metadata.publish_time_ms);
        if (!filter_.passes_time(published)) return;
        std::string_view key;
        if (has_key && (filter_.by_key || wants(Column::key))) key = key_of(fields);
        if (filter_.by_key && (!has_key || !filter_.keys.contains(key))) return;
        const std::size_t row = out_->rows++;
        if (wants(Column::key)) out_->key.push(row, key, has_key);
        if (wants(Column::value)) {
            const bool none = fields.null_value && encryption.empty();  // else it is encrypted, too
            out_->value.push(row, none ? std::string_view() : payload, !none);
            bytes_ += payload.size();
        }
        if (wants(Column::publish_time))
            out_->publish_time.push(row, published, published != kNoTime);
        if (wants(Column::event_time)) {
            const i64 us = fields.event_time_ms == 0 ? kNoTime : microseconds(fields.event_time_ms);
            out_->event_time.push(row, us, us != kNoTime);
        }
        if (wants(Column::producer)) {
            utf8::append(out_->producer.data(), walk_.metadata.producer);
            out_->producer.close(row);
            bytes_ += walk_.metadata.producer.size();
        }
        if (wants(Column::sequence)) out_->sequence.push(row, fields.sequence);
        if (wants(Column::properties)) {
            if (fields.properties > 0) push_properties(metadata, properties, fields.properties);
            close_map(row, true);
        }
        if (wants(Column::encryption)) {
            out_->encryption.push(row, encryption, !encryption.empty());
            bytes_ += encryption.size();
        }
        if (wants(Column::key_encoding)) {
            const bool base64 =
                has_key && fields.key_base64 && from_base64(fields.partition_key, key_);
            out_->key_encoding.push(row, base64 ? "base64" : "", base64);
        }
        if (wants(Column::ordering_key))
            out_->ordering_key.push(row, fields.ordering_key, fields.has_ordering_key);
        if (wants(Column::corrupt)) out_->corrupt.push(row, {}, false);
        if (wants(Column::stored_time))  // 64 bits of nanoseconds end in the year 2554
            out_->stored_time.push(row, static_cast<i64>(run.time(at) / 1000));
        if (wants(Column::deliver_at)) {
            const i64 ms = walk_.metadata.deliver_at_ms;
            const i64 us = ms <= 0 ? kNoTime : microseconds(static_cast<u64>(ms));
            out_->deliver_at.push(row, us, us != kNoTime);
        }
        if (wants(Column::schema_version)) {
            const i64 number = schema_number(walk_.metadata.schema_version);
            out_->schema_version.push(row, number, number != kNoVersion);
        }
        bytes_ += metadata.size();
        push_place(row, run.ledger(), run.first_entry() + at, batch_index,
                   run.first_ordinal() + at);
    }

    void push_place(std::size_t row, u64 ledger, u64 entry, i32 batch_index, u64 ordinal) {
        if (wants(Column::message_id)) {
            out_->ledger.push(row, static_cast<i64>(ledger));
            out_->entry.push(row, static_cast<i64>(entry));
            out_->batch_index.push(row, batch_index);
        }
        if (wants(Column::position)) out_->position.push(row, static_cast<i64>(ordinal));
        if (wants(Column::unique_id)) push_unique_id(row, ledger, entry, batch_index);
    }

    void push_unique_id(std::size_t row, u64 ledger, u64 entry, i32 batch_index) {
        ByteBuffer& text = out_->unique_id.data();
        const std::size_t before = text.size();
        const auto add = [&](auto number) {
            std::array<char, 20> digits;
            char* const end = std::to_chars(digits.data(), digits.data() + 20, number).ptr;
            text.append({digits.data(), static_cast<std::size_t>(end - digits.data())});
        };
        add(ledger);
        text.append(":");
        add(entry);
        text.append(":");
        add(batch_index);
        out_->unique_id.close(row);
        bytes_ += text.size() - before;
    }

    // A map has each key once: the last one counts, as with the clients.
    void push_properties(std::string_view metadata, u32 field, u32 count) {
        const auto push = [&](std::string_view key, std::string_view value) {
            const std::size_t pair = out_->property_names.offsets().size() / 4 - 1;
            utf8::append(out_->property_names.data(), key);
            out_->property_names.close(pair);
            utf8::append(out_->property_values.data(), value);
            out_->property_values.close(pair);
        };
        if (count == 1) return each_property(metadata, field, push);
        std::deque<std::string> made;  // two keys that are not text can become the same text
        const auto text = [&](std::string_view key) -> std::string_view {
            if (utf8::is_ascii(key)) [[likely]]
                return key;
            ByteBuffer out;
            utf8::append(out, key);
            return made.emplace_back(out.view());
        };
        std::unordered_map<std::string_view, std::size_t> last;
        std::size_t index = 0;
        each_property(metadata, field,
                      [&](std::string_view key, std::string_view) { last[text(key)] = index++; });
        index = 0;
        each_property(metadata, field, [&](std::string_view key, std::string_view value) {
            if (last[text(key)] == index++) push(key, value);
        });
    }

    void close_map(std::size_t row, bool valid) {
        const auto end = static_cast<i32>(out_->property_names.offsets().size() / 4 - 1);
        out_->property_ends.push(row, end, valid);
    }

    // The message of a client's batch at which it goes on.
    struct Walk {
        u64 ordinal = kNone;
        u32 index = 0;
        EntryMetadata metadata;
        BatchReader reader{std::string_view()};
        std::vector<BatchPart> parts;
        std::optional<EntryRun> run;
    };

    const std::vector<Column> columns_;
    u32 wanted_ = 0;
    const std::string topic_;
    const i32 partition_;
    const RowFilter filter_;
    const ColumnLimits limits_;
    const std::shared_ptr<BufferPool> pool_ = shared_pool();
    std::size_t rows_ = std::min(limits_.rows_max, kRowsFew);  // how many are expected
    std::shared_ptr<ColumnData> out_;
    std::size_t bytes_ = 0;  // about what the rows take
    Walk walk_;
    ByteBuffer expanded_;
    u64 expanded_for_ = kNone;
    std::string_view fault_;
    std::string key_;  // scratch
};

}  // namespace holdfast
