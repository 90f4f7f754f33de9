// Reads a frame (base/frame_layout.hpp): checks the whole of it first, then returns its events one
// by one.
//
// A frame may come from the network or from a disk. Nothing of it is used before all of it was
// checked. After that, every size and count in it is true, and next() does not check again.
#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "holdfast/base/errors.hpp"
#include "holdfast/base/frame_layout.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

using Bytes = std::span<const std::byte>;

// A journal block and its header must have room for the largest frame.
inline constexpr std::size_t kFrameBytesMax = (std::size_t{1} << 32) - 4096;

namespace detail {
template <class T>
T load_at(Bytes bytes, std::size_t offset) {
    T value;
    std::memcpy(&value, bytes.data() + offset, sizeof value);
    return value;
}

// Checks for UTF-8. Names are shown to people, and Python refuses other bytes.
inline bool valid_utf8(std::string_view text) {
    const auto* p = reinterpret_cast<const unsigned char*>(text.data());
    const auto* end = p + text.size();
    while (p < end) {
        const unsigned first = *p++;
        if (first < 0x80) continue;
        const int more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        if (first < 0xc2 || first > 0xf4 || end - p < more) return false;
        u32 code = first & (0x3fu >> more);
        for (int i = 0; i < more; ++i) {
            if ((*p & 0xc0) != 0x80) return false;
            code = code << 6 | (*p++ & 0x3fu);
        }
        const u32 least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        if (code < least || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    }
    return true;
}
}  // namespace detail

// One event of a checked frame.
struct EventView {
    u32 number;  // index in its frame, from 0
    u8 kind;
    u8 version;
    Bytes whole;  // with its header, as in the journal
    Bytes body;
};

// A publish event of a checked frame.
class PublishView {
 public:
    explicit PublishView(Bytes body) : body_(body) {
        header_ = detail::load_at<PublishHeader>(body, 0);
    }
    u64 topic() const { return header_.topic; }
    u64 session() const { return header_.session; }
    u64 epoch() const { return header_.epoch; }
    u32 count() const { return header_.count; }
    std::string_view producer() const {
        return {reinterpret_cast<const char*>(body_.data()) + sizeof(PublishHeader),
                header_.name_size};
    }
    PublishRow row(u32 i) const {
        return detail::load_at<PublishRow>(body_, rows() + i * sizeof(PublishRow));
    }
    // The entries' bytes, one entry after another.
    Bytes entries() const {
        return body_.subspan(rows() + std::size_t{header_.count} * sizeof(PublishRow));
    }

 private:
    std::size_t rows() const { return sizeof(PublishHeader) + header_.name_size; }

    Bytes body_;
    PublishHeader header_;
};

class FrameReader {
 public:
    FrameReader() = default;

    // Throws Corrupt, naming the byte, unless all of the frame is sound. `frame` must outlive this
    // object.
    explicit FrameReader(Bytes frame) : frame_(frame), offset_(sizeof(FrameHeader)) {
        if (frame.size() > kFrameBytesMax) fail(0, "has more bytes than a journal block can hold");
        if (frame.size() < sizeof(FrameHeader)) fail(frame.size(), "ends within its header");
        const auto header = detail::load_at<FrameHeader>(frame, 0);
        if (header.magic != kFrameMagic) fail(0, "does not begin as a frame");
        if (header.version != kFrameVersion)
            fail(2, "is of version " + std::to_string(header.version) + ", not " +
                        std::to_string(kFrameVersion));
        if (header.zero != 0) fail(3, "has a reserved byte that is not 0");
        count_ = header.count;
        time_ = header.time;
        std::size_t at = sizeof header;
        for (u32 i = 0; i < count_; ++i) at = check_event(at);
        if (at != frame.size()) fail(at, "goes on after its last event");
    }

    u32 count() const { return count_; }
    u64 time() const { return time_; }
    Bytes bytes() const { return frame_; }
    bool at_end() const { return number_ == count_; }

    // Call it only while at_end() is false.
    EventView next() {
        const auto header = detail::load_at<EventHeader>(frame_, offset_);
        const Bytes whole = frame_.subspan(offset_, sizeof header + header.size);
        offset_ += whole.size();
        return {number_++, header.kind, header.version, whole, whole.subspan(sizeof header)};
    }

 private:
    std::size_t check_event(std::size_t at) const {
        if (frame_.size() - at < sizeof(EventHeader)) fail(at, "ends within an event's header");
        const auto header = detail::load_at<EventHeader>(frame_, at);
        if (header.zero != 0) fail(at + 6, "has an event with reserved bytes that are not 0");
        if (header.kind == 0) fail(at + 4, "has an event of kind 0, which no version knows");
        const std::size_t body = at + sizeof header;
        if (frame_.size() - body < header.size) fail(at, "has an event that reaches over its end");
        if (header.kind == kPublishKind) check_publish(body, header);
        return body + header.size;
    }

    void check_publish(std::size_t at, const EventHeader& event) const {
        if (event.version != kPublishVersion)
            fail(at - 3, "has a publish of version " + std::to_string(event.version) + ", not " +
                             std::to_string(kPublishVersion));
        u64 left = event.size;
        if (left < sizeof(PublishHeader)) fail(at, "has a publish without its fields");
        const auto header = detail::load_at<PublishHeader>(frame_, at);
        if (header.zero != 0) fail(at + 30, "has a publish with reserved bytes that are not 0");
        if (header.count == 0) fail(at + 24, "has a publish without entries");
        left -= sizeof header;
        if (left < header.name_size) fail(at + 28, "has a producer's name that reaches too far");
        const std::string_view name(
            reinterpret_cast<const char*>(frame_.data()) + at + sizeof header, header.name_size);
        if (!detail::valid_utf8(name)) fail(at + sizeof header, "has a name that is not UTF-8");
        left -= header.name_size;
        if (left / sizeof(PublishRow) < header.count) fail(at + 24, "counts more entries than fit");
        left -= u64{header.count} * sizeof(PublishRow);
        std::size_t row_at = at + sizeof header + header.name_size;
        for (u32 i = 0; i < header.count; ++i, row_at += sizeof(PublishRow)) {
            const auto row = detail::load_at<PublishRow>(frame_, row_at);
            if (!possible_sequence(row.sequence, row.span))
                fail(row_at, "has an entry with an impossible sequence");
            if (row.size > left) fail(row_at + 12, "has an entry that reaches over its event");
            left -= row.size;
        }
        if (left != 0) fail(at, "has a publish with bytes that belong to no entry");
    }

    [[noreturn, gnu::cold, gnu::noinline]] static void fail(std::size_t at,
                                                            const std::string& what) {
        throw Error(Code::corrupt, "the frame " + what + " (byte " + std::to_string(at) +
                                       "); nothing of it was applied");
    }

    Bytes frame_;
    std::size_t offset_ = 0;
    u32 count_ = 0;
    u32 number_ = 0;
    u64 time_ = 0;
};

}  // namespace holdfast
