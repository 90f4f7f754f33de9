// The first 64 bytes of every file of a broker's directory: one block with the file's kind and
// owner.
//
//   | block header, kind 5, tag = id (32 bytes) | u32 file kind | u32 format version | u64 id | u64 low | u64 high |
//
// `id` is the journal's number, the ledger's id, or the snapshot's D. `low` and `high` are the
// directory's incarnation, a random number created with the directory. So a file from another
// directory is always refused.
#pragma once

#include <array>
#include <cstring>
#include <string>
#include <string_view>

#include "holdfast/base/block.hpp"
#include "holdfast/base/errors.hpp"

namespace holdfast {

inline constexpr u8 kEntryBlock = 2;     // in a ledger's data file
inline constexpr u8 kRoundBlock = 3;     // in the journal
inline constexpr u8 kFrameBlock = 4;     // in the journal
inline constexpr u8 kFileBlock = 5;      // the header of every file
inline constexpr u8 kPartBlock = 6;      // in a snapshot
inline constexpr u8 kEndBlock = 7;       // the last of a snapshot
inline constexpr u64 kBlockPadding = 8;  // entry and frame blocks start at multiples of it
inline constexpr u32 kFormatVersion = 1;

enum class FileKind : u32 {
    journal = 1,
    ledger_data = 2,
    ledger_index = 3,
    snapshot = 4,
    topic_view = 5,
};

struct Incarnation {
    u64 low = 0;
    u64 high = 0;
    bool operator==(const Incarnation&) const = default;
};

struct FileHeader {
    BlockHeader block;
    u32 kind;
    u32 version;
    u64 id;
    Incarnation incarnation;
};
static_assert(sizeof(FileHeader) == 64 && offsetof(FileHeader, incarnation) == 48);

inline constexpr std::size_t kFileHeaderSize = sizeof(FileHeader);
inline constexpr u32 kFilePayload = sizeof(FileHeader) - sizeof(BlockHeader);

constexpr u64 padded(u64 size) {
    return (size + kBlockPadding - 1) & ~(kBlockPadding - 1);
}

// The bytes that an entry or frame block of this payload takes in its file.
constexpr u64 block_space(u64 payload) {
    return padded(sizeof(BlockHeader) + payload);
}

inline FileHeader make_file_header(FileKind kind, u64 id, const Incarnation& incarnation) {
    FileHeader header{{}, static_cast<u32>(kind), kFormatVersion, id, incarnation};
    const auto* payload = reinterpret_cast<const u8*>(&header) + sizeof(BlockHeader);
    header.block = make_block(kFileBlock, kFullChecksum, kFilePayload, id, 0, payload);
    return header;
}

enum class FileFault { none, damaged, other_version, other_kind, other_id, other_directory };

// Checks that `bytes`, the first 64 of a file, are the header of that file; fewer are damage.
inline FileFault check_file_header(std::string_view bytes, FileKind kind, u64 id,
                                   const Incarnation& incarnation) {
    if (bytes.size() < kFileHeaderSize) return FileFault::damaged;
    FileHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (verify(header.block, header.block.tag, kFilePayload) != BlockFault::none ||
        header.block.kind != kFileBlock || header.block.size != kFilePayload ||
        !(header.block.flags & kFullChecksum) ||
        verify_payload(header.block, bytes.data() + sizeof(BlockHeader)) != BlockFault::none ||
        header.block.tag != header.id)
        return FileFault::damaged;
    if (header.version != kFormatVersion) return FileFault::other_version;
    if (header.kind != static_cast<u32>(kind)) return FileFault::other_kind;
    if (header.id != id) return FileFault::other_id;
    if (header.incarnation != incarnation) return FileFault::other_directory;
    return FileFault::none;
}

// Throws what check_file_header found, with the name of the file.
inline void require_file_header(std::string_view bytes, FileKind kind, u64 id,
                                const Incarnation& incarnation, const std::string& path) {
    switch (check_file_header(bytes, kind, id, incarnation)) {
        case FileFault::none:
            return;
        case FileFault::damaged:
            throw Error(Code::corrupt,
                        path + ": its header, at offset 0, is damaged; run holdfast doctor");
        case FileFault::other_version:
            throw Error(Code::layout_mismatch, path + " has another format than version " +
                                                   std::to_string(kFormatVersion) +
                                                   "; use the version of holdfast that wrote it");
        case FileFault::other_kind:
            throw Error(
                Code::corrupt,
                path +
                    ": its header, at offset 0, is of another kind of file; run holdfast doctor");
        case FileFault::other_id:
            throw Error(Code::corrupt, path +
                                           ": its header, at offset 0, has another number than its "
                                           "name; run holdfast doctor");
        case FileFault::other_directory:
            throw Error(Code::corrupt, path +
                                           ": its header, at offset 0, is of another directory; "
                                           "remove the file");
    }
}

}  // namespace holdfast
