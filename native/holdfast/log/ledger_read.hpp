// Reads runs of entries from ledgers' files. Any thread may call; the files used last stay open.
//
// Every returned block was checked: header, kind, entry number, sum (I70).
//
// Where the index does not lead to the right block, the block is found from the data alone. The
// reader follows the chain of blocks from the nearest sound one: blocks have their size in them and
// are numbered without gaps. It never searches the bytes for something like a block, because a
// payload can look like anything.
//
// Offsets found this way are kept while the file is open. So a read of a whole ledger without an
// index takes each step of the chain once. Entries behind a break are refused at once.
#pragma once

#include <iterator>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/entry/run.hpp"
#include "holdfast/log/ledger_files.hpp"

namespace holdfast {

struct ReadRequest {
    LedgerName name;
    u64 label;          // the ledger's id for users; 0: the one in its name
    u64 first_ordinal;  // of the ledger's entry 0
    u64 entry;          // where to begin
    std::size_t count_max;
    std::size_t size_max;  // of the blocks; one entry is read even if it is larger
    ReadFrom from;
    bool unread = false;  // see EntryStore
};

// Offsets of blocks that were reached along a file's chain. Any thread may call.
//
// Bytes below the visible end of a file never change, so an offset stays right while the file is
// open, also when it grows. A break of the chain is not kept, only the last block before it. Two
// blocks are read to find the break again, and a block that was written or completed since is
// found.
class ChainPlaces {
 public:
    static constexpr u64 kApart = 1024;  // entries from one kept offset to the next

    struct Place {
        u64 entry;
        u64 at;
    };

    // The nearest known offset, at this entry or before it.
    Place before(u64 entry) {
        const std::lock_guard lock(mutex_);
        if (furthest_.entry <= entry) return furthest_;
        const auto above = marks_.upper_bound(entry);
        if (above == marks_.begin()) return kFirst;
        return {std::prev(above)->first, std::prev(above)->second};
    }

    // The header of the block must have been checked there.
    void add(const Place& place) {
        const std::lock_guard lock(mutex_);
        if (place.entry >= furthest_.entry) furthest_ = place;
        const auto above = marks_.lower_bound(place.entry);
        if (above != marks_.end() && above->first - place.entry < kApart) return;
        const u64 below = above == marks_.begin() ? 0 : std::prev(above)->first;
        if (place.entry - below >= kApart) marks_.emplace_hint(above, place.entry, place.at);
    }

 private:
    static constexpr Place kFirst{0, kFileHeaderSize};

    std::mutex mutex_;
    Place furthest_ = kFirst;   // who reads on, and who is refused, begins here
    std::map<u64, u64> marks_;  // offsets by entries; a read elsewhere starts at one of them
};

class LedgerFiles {
 public:
    static constexpr std::size_t kOpenMax = 256;
    static constexpr std::size_t kNotesMax = 64;
    // how far back the reader looks for a sound block
    static constexpr u64 kStepBackMax = u64{1} << 40;
    // bytes to read where no end is known
    static constexpr std::size_t kTail = std::size_t{16} << 10;
    static constexpr std::size_t kUnasked = std::size_t{1}
                                            << 20;  // bytes to read without a look at the file

    LedgerFiles(const std::string& directory, const Incarnation& incarnation,
                std::size_t open_max = kOpenMax)
        : folder_(directory + "/ledgers"), incarnation_(incarnation), open_max_(open_max) {}

    // None: it would have to wait, and must not. A run ends early before a block that is not sound
    // or not in memory. A run that would start at such a block is an error that names file and
    // offset.
    std::optional<EntryRun> read(const ReadRequest& request) {
        const std::shared_ptr<OpenFile> file = find(request.name, request.from);
        if (!file) return std::nullopt;
        const std::size_t count = std::clamp<std::size_t>(request.count_max, 1, kRunMax);
        auto offsets = file->offsets(request.entry, count + 1, request.from);
        if (!offsets) return std::nullopt;
        Fault fault;
        if (const u64 at = offsets->empty() ? 0 : offsets->front(); is_offset(at)) {
            auto run =
                read_at(*file, request, at, hint(*offsets, count, request.size_max), count, fault);
            if (run) return run;
            if (fault.starved) return std::nullopt;
        } else {
            fault.words = offsets->empty() ? "the index has no row for it"
                                           : "the offset in the index is not possible";
        }
        if (request.from != ReadFrom::disk) return std::nullopt;
        return read_by_chain(*file, request, count, fault);
    }

    // Closes the files of a ledger in all its generations; a read in progress still ends well.
    void forget(u64 ledger) {
        const std::lock_guard lock(mutex_);
        auto at = open_.lower_bound({ledger, 0});
        while (at != open_.end() && at->first.ledger == ledger) {
            recent_.erase(at->second.place);
            at = open_.erase(at);
        }
    }

    void forget_all() {
        const std::lock_guard lock(mutex_);
        open_.clear();
        recent_.clear();
    }

    std::size_t open_files() {
        const std::lock_guard lock(mutex_);
        return open_.size();
    }

    // Damage that was found and repaired, each once; the oldest are dropped first.
    std::vector<std::string> take_notes() {
        const std::lock_guard lock(mutex_);
        return std::exchange(notes_, {});
    }

 private:
    struct OpenFile : LedgerFile {
        using LedgerFile::LedgerFile;
        ChainPlaces chain;
    };
    struct Held {
        std::shared_ptr<OpenFile> file;
        std::list<LedgerName>::iterator place;
    };
    // Why no run could start.
    struct Fault {
        std::string words;
        bool starved = false;  // the bytes are not in memory, so nothing is known of them
    };

    static bool is_offset(u64 at) {
        return at >= kFileHeaderSize && at % kBlockPadding == 0 && at < u64{1} << 62;
    }

    // The number of bytes to read: up to the end of the last entry that fits. Without an end in the
    // index it is some more, which usually includes the last entry of the ledger.
    static std::size_t hint(const std::vector<u64>& offsets, std::size_t count,
                            std::size_t size_max) {
        std::size_t size = 0;
        for (std::size_t i = 1; i < offsets.size(); ++i) {
            if (offsets[i] <= offsets[i - 1]) return size + kTail;
            const u64 here = offsets[i] - offsets[0];
            if (here > size_max && (i > 1 || here > block_space(kEntrySizeMax)))
                return i > 1 ? size : kTail;
            size = here;
        }
        return offsets.size() > count ? size : std::min(size + kTail, std::max(size_max, kTail));
    }

    std::shared_ptr<OpenFile> find(const LedgerName& name, ReadFrom from) {
        if (auto file = find_open(name); file || from != ReadFrom::disk) return file;
        // Opened without the lock, so that no other thread waits for this disk. If two threads did
        // it, the first one's file stays.
        auto file = std::make_shared<OpenFile>(folder_, name, incarnation_);
        const std::lock_guard lock(mutex_);
        if (!file->index_fault().empty()) note(file->index_fault());
        if (auto found = open_.find(name); found != open_.end()) return found->second.file;
        while (open_.size() >= open_max_) {
            open_.erase(recent_.back());
            recent_.pop_back();
        }
        recent_.push_front(name);
        open_.emplace(name, Held{file, recent_.begin()});
        return file;
    }

    std::shared_ptr<OpenFile> find_open(const LedgerName& name) {
        const std::lock_guard lock(mutex_);
        auto found = open_.find(name);
        if (found == open_.end()) return nullptr;
        recent_.splice(recent_.begin(), recent_, found->second.place);
        return found->second.file;
    }

    void note(std::string words) {  // under the mutex
        if (notes_.size() >= kNotesMax) notes_.erase(notes_.begin());
        notes_.push_back(std::move(words));
    }

    // Reads a run that starts with the block at `at`; none, with the reason, if that is not the
    // right block.
    std::optional<EntryRun> read_at(const LedgerFile& file, const ReadRequest& request, u64 at,
                                    std::size_t size, std::size_t count, Fault& fault) {
        auto store = load(file, request, at, size, fault);
        if (!store) return std::nullopt;
        RunEnd end = fill(*store, request.entry, count);
        const u64 needed = space_of(store->blocks(), request.entry);
        if (store->slots().empty() && needed > size) {  // a large entry, whose size is known now
            store = load(file, request, at, needed, fault);
            if (!store) return std::nullopt;
            end = fill(*store, request.entry, 1);
        }
        if (!store->slots().empty())
            return EntryRun(std::move(store), request.entry, request.first_ordinal + request.entry);
        fault.words = store->blocks().empty()           ? "the file ends before it"
                      : needed > store->blocks().size() ? "the file ends within it"
                                                        : wrong(end.fault);
        return std::nullopt;
    }

    static std::string wrong(BlockFault fault) {
        return "its " + std::string(fault_name(fault)) + " is wrong";
    }

    // Returns these bytes of the file; null if it would have to wait.
    std::shared_ptr<EntryStore> load(const LedgerFile& file, const ReadRequest& request, u64 at,
                                     std::size_t size, Fault& fault) {
        if (size > kUnasked) {  // no number from a file decides the size of an allocation
            const u64 end = file.data().size();
            size = std::min<u64>(size, end > at ? end - at : 0);
        }
        ByteBuffer blocks = pool_->get(size);
        const auto got = file.data().read(blocks.extend(size), size, at, request.from);
        fault.starved = !got || (*got < size && request.from != ReadFrom::disk);
        blocks.cut(got.value_or(0));
        if (blocks.size() < size / 2) {  // a run keeps little more memory than it needs
            ByteBuffer large = std::exchange(blocks, ByteBuffer());
            blocks.append(large.view());
            pool_->put(std::move(large));
        }
        if (!got) return nullptr;
        const u64 label = request.label != 0 ? request.label : request.name.ledger;
        return std::make_shared<EntryStore>(label, std::move(blocks), pool_, request.unread);
    }

    // Returns the size of the block that starts here, if its header is plausible; else 0.
    static u64 space_of(std::string_view bytes, u64 number) {
        if (bytes.size() < sizeof(BlockHeader)) return 0;
        BlockHeader header;
        std::memcpy(&header, bytes.data(), sizeof header);
        if (verify(header, number, kEntrySizeMax) != BlockFault::none) return 0;
        return header.kind == kEntryBlock ? sizeof header + header.size : 0;
    }

    EntryRun read_by_chain(OpenFile& file, const ReadRequest& request, std::size_t count,
                           Fault& fault) {
        const u64 at = locate(file, request.entry, fault);
        const std::size_t size = std::max(request.size_max, sizeof(BlockHeader));
        auto run = read_at(file, request, at, size, count, fault);
        if (!run) throw damaged(file, request.entry, at, fault.words);
        const std::size_t last = run->count() - 1;
        file.chain.add({request.entry + last, at + run->slot(last).offset - sizeof(BlockHeader)});
        const std::lock_guard lock(mutex_);
        note(file.data().path() + ": the index does not lead to entry " +
             std::to_string(request.entry) + ", which was found at offset " + std::to_string(at) +
             "; rebuild it with holdfast doctor");
        return std::move(*run);
    }

    static Error damaged(const LedgerFile& file, u64 entry, u64 at, const std::string& words) {
        return Error(Code::corrupt, file.data().path() + ": entry " + std::to_string(entry) +
                                        " cannot be read at offset " + std::to_string(at) + ": " +
                                        words + "; run holdfast doctor on the directory");
    }

    // Finds entry `wanted` along the chain, from the nearest block before it that is known, or
    // sound by the index.
    u64 locate(OpenFile& file, u64 wanted, const Fault& fault) {
        auto [entry, at] = file.chain.before(wanted);
        const u64 known = entry;
        for (u64 back = 1; back < wanted - known && back <= kStepBackMax; back *= 2) {
            if (const u64 found = sound_at(file, wanted - back)) {
                entry = wanted - back;
                at = found;
                break;
            }
        }
        for (; entry < wanted; ++entry) {
            char bytes[sizeof(BlockHeader)];
            const std::size_t got = *file.data().read(bytes, sizeof bytes, at, ReadFrom::disk);
            if (got == 0)
                throw damaged(file, wanted, at,
                              "the file ends here, before entry " + std::to_string(entry) +
                                  " (by its index: " + fault.words + ")");
            const u64 space = space_of({bytes, got}, entry);
            if (space == 0)
                throw damaged(file, entry, at,
                              "no block of that number is here, so entry " +
                                  std::to_string(wanted) + " behind it is lost, too");
            file.chain.add({entry, at});
            at += padded(space);
        }
        return at;
    }

    // Returns the offset that the index has for this entry, if the right block is there; else 0.
    u64 sound_at(const LedgerFile& file, u64 entry) {
        const auto offsets = *file.offsets(entry, 1, ReadFrom::disk);
        if (offsets.empty() || !is_offset(offsets[0])) return 0;
        ReadRequest request{{}, 1, 0, entry, 1, 64 << 10, ReadFrom::disk};
        Fault fault;
        return read_at(file, request, offsets[0], request.size_max, 1, fault) ? offsets[0] : 0;
    }

    const std::string folder_;
    const Incarnation incarnation_;
    const std::size_t open_max_;
    const std::shared_ptr<BufferPool> pool_ = std::make_shared<BufferPool>();
    std::mutex mutex_;
    std::map<LedgerName, Held> open_;
    std::list<LedgerName> recent_;  // the last used first
    std::vector<std::string> notes_;
};

// The same from bytes: `data` starts with the block of `entry`. `index` holds the file offsets of
// that entry and those after it, as many as wanted. With an empty index all of `data` is taken. The
// index must agree with the data.
inline EntryRun parse_run(u64 ledger, u64 first_ordinal, u64 entry, std::string_view index,
                          std::string_view data) {
    const auto offset_of = [&](std::size_t i) {
        u64 offset;
        std::memcpy(&offset, index.data() + 8 * i, 8);
        return offset;
    };
    const std::size_t count = index.empty() ? data.size() / sizeof(BlockHeader) : index.size() / 8;
    const u64 base = index.size() < 8 ? 0 : offset_of(0);
    ByteBuffer blocks;
    blocks.append(data);
    auto store = std::make_shared<EntryStore>(ledger, std::move(blocks));
    const RunEnd end = fill(*store, entry, count);
    const auto damaged = [&](std::size_t i, u64 at, std::string_view words) {
        return Error(Code::corrupt, "ledger " + std::to_string(ledger) + ": entry " +
                                        std::to_string(entry + i) + ", at offset " +
                                        std::to_string(at) +
                                        ", cannot be read: " + std::string(words));
    };
    if (store->slots().empty())
        throw damaged(0, base,
                      data.empty() ? "there are no bytes" : std::string(fault_name(end.fault)));
    for (std::size_t i = 0; i < store->slots().size() && !index.empty(); ++i) {
        const u64 at = base + store->slots()[i].offset - sizeof(BlockHeader);
        if (offset_of(i) != at) throw damaged(i, at, "the index has another offset for it");
    }
    return EntryRun(std::move(store), entry, first_ordinal + entry);
}

}  // namespace holdfast
