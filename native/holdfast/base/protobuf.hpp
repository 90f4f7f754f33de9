// The wire format of protocol buffers: the part that an entry's metadata needs, varints and byte
// strings.
//
// A message is a run of fields: `varint tag · value`, tag = field number << 3 | wire type. Wire
// types: 0 varint, 1 eight bytes, 2 varint size and that many bytes, 5 four bytes. An unknown field
// is skipped; a known field with another wire type counts as unknown; the last of several wins.
// Groups (3, 4) are not read: no entry has them.
#pragma once

#include <cstring>
#include <string_view>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/types.hpp"

namespace holdfast {

enum class Wire : u8 { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

constexpr u32 proto_tag(u32 field, Wire wire) {
    return field << 3 | static_cast<u32>(wire);
}

// Reads one message. The bytes may be anything: bytes that do not fit set bad(), and end the
// reading.
class ProtoReader {
 public:
    explicit ProtoReader(std::string_view bytes)
        : at_(reinterpret_cast<const u8*>(bytes.data())), end_(at_ + bytes.size()) {}

    bool bad() const { return bad_; }
    bool ended() const { return at_ == end_; }
    std::size_t left() const { return static_cast<std::size_t>(end_ - at_); }  // bytes

    // Returns the tag of the next field, whose value must then be read or skipped; 0 at the end.
    u32 next() {
        if (at_ == end_) return 0;
        const u64 tag = varint();
        if (tag >> 3 == 0 || tag > 0xffffffffu) fail();
        return bad_ ? 0 : static_cast<u32>(tag);
    }

    u64 varint() {
        if (at_ != end_ && *at_ < 0x80) [[likely]]
            return *at_++;
        u64 value = 0;
        for (u32 shift = 0; shift <= 63 && at_ != end_; shift += 7) {
            const u64 byte = *at_++;
            value |= (byte & 0x7f) << shift;
            if (byte < 0x80) {
                if (shift == 63 && byte > 1) break;  // more than 64 bits
                return value;
            }
        }
        fail();
        return 0;
    }

    std::string_view bytes() {
        const u64 size = varint();
        if (bad_ || size > static_cast<u64>(end_ - at_)) {
            fail();
            return {};
        }
        const u8* start = at_;
        at_ += size;
        return {reinterpret_cast<const char*>(start), static_cast<std::size_t>(size)};
    }

    void skip(u32 tag) {
        switch (tag & 7) {
            case 0:
                varint();
                return;
            case 1:
                return jump(8);
            case 2:
                bytes();
                return;
            case 5:
                return jump(4);
            default:
                fail();
        }
    }

 private:
    void jump(std::ptrdiff_t count) {
        if (end_ - at_ < count) return fail();
        at_ += count;
    }
    void fail() {
        bad_ = true;
        at_ = end_;
    }

    const u8* at_;
    const u8* end_;
    bool bad_ = false;
};

inline constexpr std::size_t kVarintMax = 10;

constexpr std::size_t varint_size(u64 value) {
    std::size_t size = 1;
    for (; value >= 0x80; value >>= 7) ++size;
    return size;
}

// Writes at most kVarintMax bytes; returns where the next byte goes.
inline u8* write_varint(u8* at, u64 value) {
    for (; value >= 0x80; value >>= 7) *at++ = static_cast<u8>(value | 0x80);
    *at++ = static_cast<u8>(value);
    return at;
}

inline void append_varint(ByteBuffer& out, u64 value) {
    u8 bytes[kVarintMax];
    out.append(bytes, static_cast<std::size_t>(write_varint(bytes, value) - bytes));
}

inline void append_field(ByteBuffer& out, u32 field, u64 value) {
    append_varint(out, proto_tag(field, Wire::varint));
    append_varint(out, value);
}

inline void append_field(ByteBuffer& out, u32 field, std::string_view value) {
    append_varint(out, proto_tag(field, Wire::bytes));
    append_varint(out, value.size());
    out.append(value);
}

}  // namespace holdfast
