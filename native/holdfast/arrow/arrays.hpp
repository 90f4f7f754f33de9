// Arrays in Arrow's layout, filled row by row, and exported through the Arrow C data interface
// without a copy.
//
// A column is up to three buffers: validity bits (absent while nothing is null), 32-bit offsets,
// values. The receiver of an exported array calls its `release` once. The buffers live until the
// last array that shares them is released, and go back to their pool. The two structs are those of
// the interface's specification, word for word.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "holdfast/base/buffer_pool.hpp"
#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/types.hpp"

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
#define ARROW_FLAG_NULLABLE 2
extern "C" {
struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    struct ArrowSchema** children;
    struct ArrowSchema* dictionary;
    void (*release)(struct ArrowSchema*);
    void* private_data;
};
struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    struct ArrowArray** children;
    struct ArrowArray* dictionary;
    void (*release)(struct ArrowArray*);
    void* private_data;
};
}
#endif

namespace holdfast {

// The rows that are not null. Takes no memory before the first null.
class Validity {
 public:
    [[gnu::always_inline]] void push(std::size_t row, bool valid) {
        if (valid && bits_.size() == 0) [[likely]]
            return;
        set(row, valid);
    }

    std::size_t nulls() const { return nulls_; }
    const void* data() const { return nulls_ == 0 ? nullptr : bits_.data(); }
    ByteBuffer& buffer() { return bits_; }

 private:
    void set(std::size_t row, bool valid) {
        if (bits_.size() == 0) {  // all before this row were valid
            const std::size_t whole = row / 8 + 1;
            std::memset(bits_.extend(whole), 0xff, whole);
        }
        if (row / 8 >= bits_.size()) *bits_.extend(1) = 0;
        u8& byte = bits_.data()[row / 8];
        const u8 bit = static_cast<u8>(1u << (row % 8));
        byte = static_cast<u8>(valid ? byte | bit : byte & ~bit);
        nulls_ += valid ? 0 : 1;
    }

    ByteBuffer bits_;
    std::size_t nulls_ = 0;
};

template <class T>
class FixedColumn {
 public:
    [[gnu::always_inline]] void push(std::size_t row, T value, bool valid = true) {
        std::memcpy(values_.extend(sizeof(T)), &value, sizeof(T));
        validity_.push(row, valid);
    }
    Validity& validity() { return validity_; }
    ByteBuffer& values() { return values_; }

 private:
    ByteBuffer values_;
    Validity validity_;
};

// Binary or UTF-8. The caller keeps the bytes of all rows together below 2 GiB.
class BytesColumn {
 public:
    void push(std::size_t row, std::string_view bytes, bool valid = true) {
        data_.append(bytes);
        close(row, valid);
    }
    [[gnu::always_inline]] void close(
        std::size_t row, bool valid = true) {  // the bytes appended to data() are this row's
        const auto end = static_cast<std::int32_t>(data_.size());
        std::memcpy(offsets_.extend(4), &end, 4);
        validity_.push(row, valid);
    }
    void begin(BufferPool& pool, std::size_t rows, std::size_t bytes) {
        offsets_ = pool.get(4 * (rows + 1));
        data_ = pool.get(bytes);
        const std::int32_t zero = 0;
        offsets_.append(&zero, 4);
    }
    Validity& validity() { return validity_; }
    ByteBuffer& data() { return data_; }
    ByteBuffer& offsets() { return offsets_; }

 private:
    ByteBuffer offsets_, data_;
    Validity validity_;
};

namespace utf8 {

inline bool is_ascii(std::string_view text) {
    u64 high = 0, word;
    std::size_t i = 0;
    for (; i + 8 <= text.size(); i += 8) {
        std::memcpy(&word, text.data() + i, 8);
        high |= word;
    }
    for (; i < text.size(); ++i) high |= static_cast<u8>(text[i]);
    return (high & 0x8080808080808080u) == 0;
}

// Returns the length of the character that starts here; 0: it is not UTF-8.
inline std::size_t character(std::string_view text) {
    const auto at = [&](std::size_t i) { return static_cast<u8>(text[i]); };
    const auto more = [&](std::size_t i) { return i < text.size() && (at(i) & 0xc0) == 0x80; };
    const u8 first = at(0);
    if (first < 0x80) return 1;
    if (first < 0xc2) return 0;
    if (first < 0xe0) return more(1) ? 2 : 0;
    if (first < 0xf0) {
        if (!more(1) || !more(2)) return 0;
        const u32 code = (first & 0xfu) << 12 | (at(1) & 0x3fu) << 6;
        return code < 0x800 || (code >= 0xd800 && code < 0xe000) ? 0 : 3;
    }
    if (first > 0xf4 || !more(1) || !more(2) || !more(3)) return 0;
    const u32 code = (first & 7u) << 18 | (at(1) & 0x3fu) << 12;
    return code < 0x10000 || code >= 0x110000 ? 0 : 4;
}

// Replaces bytes that are not UTF-8 by U+FFFD, so that a reader of text gets text. The result is at
// most three times as long.
inline void append(ByteBuffer& out, std::string_view text) {
    if (is_ascii(text)) [[likely]]
        return out.append(text);
    while (!text.empty()) {
        const std::size_t size = character(text);
        if (size == 0)
            out.append("\xef\xbf\xbd", 3);
        else
            out.append(text.substr(0, size));
        text.remove_prefix(size == 0 ? 1 : size);
    }
}

}  // namespace utf8

// One array, or a tree of them, as it is described to the other side. It does not own the buffers.
struct ArrayNode {
    std::string name, format;
    std::int64_t length = 0, nulls = 0;
    std::vector<const void*> buffers;
    std::vector<ArrayNode> children;
    bool nullable = true;
};

namespace arrow_export {

inline const u64 kNothing[8] = {};  // where a buffer without bytes points to

struct SchemaOwner {
    std::string name, format;
    std::vector<ArrowSchema> children;
    std::vector<ArrowSchema*> pointers;
};

struct ArrayOwner {
    std::shared_ptr<const void> keep;
    std::vector<const void*> buffers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray*> pointers;
};

// A child that was moved away has no `release` any more; the others are released with their parent.
template <class Owner, class Exported>
void release(Exported* exported) {
    auto* owner = static_cast<Owner*>(exported->private_data);
    for (Exported& child : owner->children)
        if (child.release != nullptr) child.release(&child);
    exported->release = nullptr;
    delete owner;
}

inline void schema(const ArrayNode& node, ArrowSchema* out) {
    auto owner = std::make_unique<SchemaOwner>();
    owner->name = node.name;
    owner->format = node.format;
    // no `release` yet, because the next line may throw
    owner->children.resize(node.children.size());
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        schema(node.children[i], &owner->children[i]);
        owner->pointers.push_back(&owner->children[i]);
    }
    *out = {owner->format.c_str(),
            owner->name.c_str(),
            nullptr,
            node.nullable ? ARROW_FLAG_NULLABLE : 0,
            static_cast<std::int64_t>(owner->children.size()),
            owner->pointers.data(),
            nullptr,
            &release<SchemaOwner, ArrowSchema>,
            nullptr};
    out->private_data = owner.release();
}

inline void array(const ArrayNode& node, const std::shared_ptr<const void>& keep, ArrowArray* out) {
    auto owner = std::make_unique<ArrayOwner>();
    owner->keep = keep;
    owner->buffers = node.buffers;
    owner->children.resize(node.children.size());
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        array(node.children[i], keep, &owner->children[i]);
        owner->pointers.push_back(&owner->children[i]);
    }
    *out = {node.length,
            node.nulls,
            0,
            static_cast<std::int64_t>(owner->buffers.size()),
            static_cast<std::int64_t>(owner->children.size()),
            owner->buffers.data(),
            owner->pointers.data(),
            nullptr,
            &release<ArrayOwner, ArrowArray>,
            nullptr};
    out->private_data = owner.release();
}

inline const void* values(const ByteBuffer& buffer) {
    return buffer.size() == 0 ? kNothing : static_cast<const void*>(buffer.data());
}

template <class T>
ArrayNode fixed(std::string name, std::string format, FixedColumn<T>& column) {
    ArrayNode out{std::move(name), std::move(format), {}, {}, {}, {}};
    out.length = static_cast<std::int64_t>(column.values().size() / sizeof(T));
    out.nulls = static_cast<std::int64_t>(column.validity().nulls());
    out.buffers = {column.validity().data(), values(column.values())};
    return out;
}

inline ArrayNode bytes(std::string name, std::string format, BytesColumn& column) {
    ArrayNode out{std::move(name), std::move(format), {}, {}, {}, {}};
    out.length = static_cast<std::int64_t>(column.offsets().size() / 4) - 1;
    out.nulls = static_cast<std::int64_t>(column.validity().nulls());
    out.buffers = {column.validity().data(), values(column.offsets()), values(column.data())};
    return out;
}

}  // namespace arrow_export
}  // namespace holdfast
