// Builds one frame (base/frame_layout.hpp) in one growing buffer.
//
// An addition that fails leaves the frame as it was before.
#pragma once

#include <cstring>
#include <limits>
#include <string>
#include <string_view>

#include "holdfast/base/byte_buffer.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/frame_layout.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

inline void require_entry_size(std::size_t size) {
    if (size > kEntrySizeMax)
        throw Error(Code::too_large, "an entry has at most " + std::to_string(kEntrySizeMax) +
                                         " bytes, not " + std::to_string(size));
}

class FrameWriter {
 public:
    explicit FrameWriter(const ByteMemory& memory = kPlainMemory) : buffer_(memory) {}

    u32 count() const { return count_; }
    std::size_t size() const { return std::max(buffer_.size(), sizeof(FrameHeader)); }
    std::size_t capacity() const { return buffer_.capacity(); }

    void event(u8 kind, u8 version, std::string_view body) {
        Addition addition(*this, kind, version);
        addition.require_room(body.size());
        buffer_.append(body);
        addition.keep();
    }

    // One publish event under construction: first the number of entries, then each entry.
    class Publish;

    // The whole frame, valid until the next call.
    std::string_view finish(u64 time_ns) {
        begin();
        const FrameHeader header{kFrameMagic, kFrameVersion, 0, count_, time_ns};
        std::memcpy(buffer_.data(), &header, sizeof header);
        return buffer_.view();
    }

    // Empties the frame.
    void clear() {
        buffer_.clear(kKeep);
        count_ = 0;
    }

    // Empties the frame and gives its memory to the caller; adopt() takes some for the next.
    void* release() {
        count_ = 0;
        return buffer_.release();
    }
    void adopt(void* base, std::size_t capacity) { buffer_.adopt(base, capacity); }

 private:
    static constexpr std::size_t kKeep = 2 * kFrameSizeMax;

    // Removes an addition, unless keep() was reached.
    class Addition {
     public:
        Addition(FrameWriter& frame, u8 kind, u8 version)
            : frame_(frame), start_(frame.begin()), kind_(kind), version_(version) {
            frame_.buffer_.extend(sizeof(EventHeader));
        }
        Addition(const Addition&) = delete;
        ~Addition() {
            if (!kept_) frame_.buffer_.cut(start_);
        }

        // Refuses a frame that would be too large, before the bytes are copied.
        void require_room(std::size_t more) const {
            const std::size_t total = frame_.buffer_.size() + more;
            if (total - start_ - sizeof(EventHeader) > std::numeric_limits<u32>::max())
                throw Error(Code::too_large,
                            "an event of more than 4 GiB fits in no frame; publish less at once");
            if (frame_.count_ > 0 && total > kFrameSizeMax)
                throw Error(Code::full, "the frame holds " + std::to_string(frame_.count_) +
                                            " events and has no room for this one below 8 MiB; "
                                            "take() it and add the event to the next");
        }

        void keep() {
            require_room(0);
            const std::size_t body = frame_.buffer_.size() - start_ - sizeof(EventHeader);
            const EventHeader header{static_cast<u32>(body), kind_, version_, 0};
            std::memcpy(frame_.buffer_.data() + start_, &header, sizeof header);
            ++frame_.count_;
            kept_ = true;
        }

     private:
        FrameWriter& frame_;
        std::size_t start_;
        u8 kind_, version_;
        bool kept_ = false;
    };

    // Adds the header to an empty frame; returns the offset of the next event.
    std::size_t begin() {
        if (buffer_.size() == 0) buffer_.extend(sizeof(FrameHeader));
        return buffer_.size();
    }

    ByteBuffer buffer_;
    u32 count_ = 0;
};

class FrameWriter::Publish {
 public:
    // `bytes`: about the size of all entries, to grow the buffer once.
    Publish(FrameWriter& frame, u64 topic, u64 session, u64 epoch, std::string_view producer,
            std::size_t entries, std::size_t bytes)
        : frame_(frame), addition_(frame, kPublishKind, kPublishVersion) {
        if (producer.size() > std::numeric_limits<u16>::max())
            throw Error(Code::too_large, "a producer's name has at most 65535 bytes, not " +
                                             std::to_string(producer.size()));
        if (entries == 0 || entries > std::numeric_limits<u32>::max())
            throw Error(Code::misuse, "a publish needs at least one entry");
        const std::size_t fixed =
            sizeof(PublishHeader) + producer.size() + entries * sizeof(PublishRow);
        addition_.require_room(fixed);
        frame.buffer_.reserve(std::min(frame.buffer_.size() + fixed + bytes, 4 * kFrameSizeMax));
        const PublishHeader header{
            topic, session, epoch, static_cast<u32>(entries), static_cast<u16>(producer.size()), 0};
        frame.buffer_.append(&header, sizeof header);
        frame.buffer_.append(producer);
        row_ = frame.buffer_.size();
        rows_end_ = row_ + entries * sizeof(PublishRow);
        frame.buffer_.extend(entries * sizeof(PublishRow));
    }

    void entry(i64 sequence, u64 span, std::string_view bytes) {
        addition_.require_room(bytes.size());
        frame_.buffer_.append(bytes);
        row(sequence, span, bytes.size());
    }

    // A chunk that is not the last one of its message: it covers no sequence number, its span is 0.
    void chunk(i64 sequence, std::string_view bytes) {
        entry(sequence, 1, bytes);
        const u32 none = 0;
        u8* row = frame_.buffer_.data() + row_ - sizeof(PublishRow);
        std::memcpy(row + offsetof(PublishRow, span), &none, sizeof none);
    }

    // For an entry that is written in place: `write` appends it to the buffer and returns its size,
    // at most `size_bound`.
    template <class Write>
    void entry(i64 sequence, u64 span, std::size_t size_bound, Write write) {
        require_entry_size(size_bound);
        addition_.require_room(size_bound);
        const std::size_t size = write(frame_.buffer_);
        row(sequence, span, size);
    }

    void keep() {
        if (row_ != rows_end_)
            throw Error(Code::misuse, "the publish has fewer entries than its count");
        addition_.keep();
    }

 private:
    void row(i64 sequence, u64 span, std::size_t size) {
        if (row_ == rows_end_)
            throw Error(Code::misuse, "the publish has more entries than its count");
        require_entry_size(size);
        if (span == 0 || !possible_sequence(sequence, span))
            throw Error(Code::misuse, "sequence " + std::to_string(sequence) + " with a span of " +
                                          std::to_string(span) +
                                          " is not possible; sequences are 0 to 2^63-2 and a span "
                                          "is 1 to 2^32-1");
        addition_.require_room(0);
        const PublishRow row{sequence, static_cast<u32>(span), static_cast<u32>(size)};
        std::memcpy(frame_.buffer_.data() + row_, &row, sizeof row);
        row_ += sizeof row;
    }

    FrameWriter& frame_;
    Addition addition_;
    std::size_t row_ = 0;  // where the next row goes
    std::size_t rows_end_ = 0;
};

}  // namespace holdfast
