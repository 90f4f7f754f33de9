// Reads of ledgers from files: the result is right for any damage of the index. Damage is named
// with its file and offset.
#include <sys/stat.h>

#include <atomic>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/log/ledger_read.hpp"
#include "tests/check.hpp"
#include "tests/entry/ledger_bytes.hpp"

using namespace holdfast;
using namespace holdfast::test;

static const Incarnation kIncarnation{11, 22};

static std::string directory() {
    const char* given = std::getenv("HOLDFAST_RUNTIME_DIR");
    const std::string out = given != nullptr ? given : "/dev/shm";
    ::mkdir((out + "/ledgers").c_str(), 0700);
    return out;
}

static std::string path_of(u64 ledger, const char* suffix, u32 generation = 0) {
    return directory() + "/ledgers/" + LedgerName{ledger, generation}.file(suffix);
}

static std::string header_of(FileKind kind, u64 ledger,
                             const Incarnation& incarnation = kIncarnation) {
    const FileHeader header = make_file_header(kind, ledger, incarnation);
    return std::string(reinterpret_cast<const char*>(&header), sizeof header);
}

static void write_file(const std::string& path, std::string_view bytes) {
    std::ofstream(path, std::ios::binary | std::ios::trunc)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

static void write_ledger(u64 ledger, const LedgerBytes& bytes, u32 generation = 0) {
    write_file(path_of(ledger, "data", generation),
               header_of(FileKind::ledger_data, ledger) + std::string(bytes.data()));
    write_file(path_of(ledger, "index", generation),
               header_of(FileKind::ledger_index, ledger) + std::string(bytes.index_from(0)));
}

static LedgerBytes some_ledger(int entries, std::size_t step = 37) {
    LedgerBytes out;
    for (int i = 0; i < entries; ++i)
        out.add(single_entry(i, std::string(static_cast<std::size_t>(i) % 9 * step, 'x')),
                static_cast<u64>(1000 + i));
    return out;
}

static EntryRun read(LedgerFiles& files, u64 ledger, u64 entry, std::size_t count = 1,
                     std::size_t size = 1 << 16, u32 generation = 0) {
    auto run = files.read({{ledger, generation}, 0, 500, entry, count, size, ReadFrom::disk});
    CHECK(run.has_value());
    return *run;
}

static void check_entries(const EntryRun& run, const LedgerBytes& ledger) {
    for (std::size_t i = 0; i < run.count(); ++i) {
        const u64 number = run.first_entry() + i;
        CHECK(run.time(i) == 1000 + number);
        const std::string_view block = ledger.data_from(number);
        CHECK(block.substr(sizeof(BlockHeader), run.bytes(i).size()) == run.bytes(i));
    }
}

static void test_read() {
    const LedgerBytes ledger = some_ledger(100);
    write_ledger(1, ledger);
    LedgerFiles files(directory(), kIncarnation);
    // No file is open yet, so a read would have to wait.
    CHECK(!files.read({{1, 0}, 0, 0, 0, 1, 100, ReadFrom::memory}));
    for (u64 entry = 0; entry < 100; ++entry) {
        for (const std::size_t count : {1u, 2u, 7u, 200u}) {
            for (const std::size_t size : {0u, 33u, 200u, 3000u, 1u << 20}) {
                const EntryRun run = read(files, 1, entry, count, size);
                CHECK(run.count() >= 1 && run.count() <= count);
                CHECK(run.ledger() == 1 && run.first_entry() == entry);
                CHECK(run.first_ordinal() == 500 + entry);
                check_entries(run, ledger);
                if (size == 1u << 20) CHECK(run.count() == std::min<u64>(count, 100 - entry));
                if (run.count() > 1 && run.end_ordinal() < 600) CHECK(run.space() <= size);
            }
        }
    }
    const auto labelled = files.read({{1, 0}, 77, 0, 3, 1, 100, ReadFrom::memory});
    CHECK(labelled && labelled->ledger() == 77);
    CHECK(files.take_notes().empty());
    CHECK_ERROR(Code::corrupt, read(files, 1, 100), "entry 100", "ends before it", ".data");
    CHECK_ERROR(Code::corrupt, read(files, 1, ~u64{0}), "ends here, before entry 100");
    CHECK_ERROR(Code::not_found, read(files, 2, 0), "0000000000000002.data");
}

static void test_large_entries() {
    LedgerBytes ledger;
    for (int i = 0; i < 6; ++i)
        ledger.add(single_entry(i, std::string(i % 2 == 0 ? 300'000 : 50, 'l')),
                   static_cast<u64>(1000 + i));
    write_ledger(1, ledger);
    LedgerFiles files(directory(), kIncarnation);
    for (u64 entry = 0; entry < 6; ++entry) {
        CHECK(read(files, 1, entry, 10, 100).count() == 1);  // whole, though larger than the limit
        check_entries(read(files, 1, entry, 10, 100), ledger);
    }
    CHECK(read(files, 1, 0, 10, 310'000).count() == 2);
    CHECK(read(files, 1, 0, 10, 10'000'000).count() == 6);
    // The last one, whose end the index does not have; and without an index at all.
    write_file(path_of(1, "index"), "");
    files.forget(1);
    for (u64 entry = 0; entry < 6; ++entry) check_entries(read(files, 1, entry, 10, 100), ledger);
    CHECK(files.open_files() == 1);
    files.forget_all();
    CHECK(files.open_files() == 0);
    check_entries(read(files, 1, 0, 10, 100), ledger);  // the read can be repeated
}

// Any bit of the index may be wrong (I71): the result is the same, with a note where the read
// followed the chain.
static void test_damaged_index() {
    const LedgerBytes ledger = some_ledger(20);
    const std::string index =
        header_of(FileKind::ledger_index, 1) + std::string(ledger.index_from(0));
    for (std::size_t bit = 0; bit < index.size() * 8; bit += bit < 512 ? 7 : 1) {
        std::string bad = index;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
        write_ledger(1, ledger);
        write_file(path_of(1, "index"), bad);
        LedgerFiles files(directory(), kIncarnation);
        const u64 hit = bit < 512 ? 0 : bit / 64 - 8;
        for (const u64 entry : {u64{0}, hit > 0 ? hit - 1 : 0, hit, u64{19}}) {
            const EntryRun run = read(files, 1, entry, 3);
            CHECK(run.count() >= 1);
            check_entries(run, ledger);
        }
        CHECK(!files.take_notes().empty());
        CHECK(files.take_notes().empty());
    }
    for (std::size_t size = 0; size <= index.size(); size += 4) {
        write_file(path_of(1, "index"), index.substr(0, size));
        LedgerFiles files(directory(), kIncarnation);
        for (u64 entry = 0; entry < 20; ++entry) check_entries(read(files, 1, entry, 3), ledger);
    }
    // Several in a row, so that those before it lead nowhere, too.
    write_ledger(1, ledger);
    std::string wrong = index;
    for (std::size_t entry = 5; entry < 19; ++entry) wrong[kFileHeaderSize + 8 * entry] ^= 8;
    write_file(path_of(1, "index"), wrong);
    LedgerFiles several(directory(), kIncarnation);
    for (u64 entry = 0; entry < 20; ++entry) check_entries(read(several, 1, entry, 3), ledger);
    // An offset of another sound block, and one of a block that a payload imitates.
    LedgerBytes trap;
    LedgerBytes forged;
    forged.add(single_entry(9, "forged"), 1);
    forged.add(single_entry(9, "forged"), 1);
    trap.add(single_entry(0, forged.data()), 1000);
    trap.add(single_entry(1, "true"), 1001);
    write_ledger(1, trap);
    std::string pointing = header_of(FileKind::ledger_index, 1) + std::string(trap.index_from(0));
    std::memcpy(pointing.data() + 72, pointing.data() + 64, 8);
    write_file(path_of(1, "index"), pointing);
    LedgerFiles files(directory(), kIncarnation);
    check_entries(read(files, 1, 1), trap);
    CHECK(files.take_notes().size() == 1);
}

// Any bit of the data may be wrong, or the file may end anywhere (I72). Entries before the damage
// are read, and so are those behind it that the index still finds. The damaged one is named.
static void test_damaged_data() {
    const LedgerBytes ledger = some_ledger(8, 11);
    const std::string data = header_of(FileKind::ledger_data, 1) + std::string(ledger.data());
    const auto block_end = [&](std::size_t entry) {
        BlockHeader header;
        std::memcpy(&header, data.data() + ledger.offset(entry), sizeof header);
        return ledger.offset(entry) + sizeof header + header.size;
    };
    const auto check = [&](const std::string& bytes, std::size_t hit) {
        write_ledger(1, ledger);
        write_file(path_of(1, "data"), bytes);
        LedgerFiles files(directory(), kIncarnation);
        for (std::size_t entry = 0; entry < 8; ++entry) {
            const std::string name = "entry " + std::to_string(entry);
            if (entry == hit) {
                const std::string place = "at offset " + std::to_string(ledger.offset(entry));
                CHECK_ERROR(Code::corrupt, read(files, 1, entry, 8), name, place,
                            "0000000000000001.data");
                continue;
            }
            if (ledger.offset(entry) >= bytes.size()) {
                CHECK_ERROR(Code::corrupt, read(files, 1, entry, 8), name, "at offset");
                continue;
            }
            const EntryRun run = read(files, 1, entry, 8);
            check_entries(run, ledger);
            CHECK(run.count() == (entry < hit ? std::min<std::size_t>(hit, 8) : 8) - entry);
        }
        CHECK(files.take_notes().empty());
    };
    for (std::size_t bit = kFileHeaderSize * 8; bit < data.size() * 8; ++bit) {
        std::size_t hit = 0;
        while (hit < 7 && ledger.offset(hit + 1) <= bit / 8) ++hit;
        if (bit / 8 >= block_end(hit)) continue;  // padding: never read
        std::string bad = data;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
        check(bad, hit);
    }
    for (std::size_t size = kFileHeaderSize; size < data.size(); ++size) {
        std::size_t hit = 0;
        while (hit < 8 && block_end(hit) <= size) ++hit;
        check(data.substr(0, size), hit);
    }
    // Without an index, entries behind the damage cannot be found; the error names the damaged
    // entry.
    std::string bad = data;
    bad[ledger.offset(4)] = 'x';
    write_file(path_of(1, "data"), bad);
    write_file(path_of(1, "index"), "");
    LedgerFiles files(directory(), kIncarnation);
    check_entries(read(files, 1, 3), ledger);
    CHECK_ERROR(Code::corrupt, read(files, 1, 6), "entry 4", std::to_string(ledger.offset(4)),
                "entry 6 behind it");
    // With an index, the chain starts behind the damage at a sound block, also after a walk from
    // before it.
    std::string index = header_of(FileKind::ledger_index, 1) + std::string(ledger.index_from(0));
    for (const std::size_t entry : {5, 7}) index[kFileHeaderSize + 8 * entry] ^= 8;
    write_file(path_of(1, "index"), index);
    files.forget(1);
    CHECK_ERROR(Code::corrupt, read(files, 1, 5), "entry 4", "entry 5 behind it");
    check_entries(read(files, 1, 7), ledger);
}

static void test_headers() {
    const LedgerBytes ledger = some_ledger(3);
    const std::string data(ledger.data());
    const auto refused = [&](const std::string& header, Code code, const char* words) {
        write_ledger(1, ledger);
        write_file(path_of(1, "data"), header + data);
        LedgerFiles files(directory(), kIncarnation);
        CHECK_ERROR(code, read(files, 1, 0), words, ".data");
    };
    refused("", Code::corrupt, "damaged");
    refused(header_of(FileKind::journal, 1), Code::corrupt, "another kind");
    refused(header_of(FileKind::ledger_data, 2), Code::corrupt, "another number");
    refused(header_of(FileKind::ledger_data, 1, {11, 23}), Code::corrupt, "another directory");
    const std::string good = header_of(FileKind::ledger_data, 1);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
        std::string bad = good;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ 1 << (bit % 8));
        CHECK(check_file_header(bad, FileKind::ledger_data, 1, kIncarnation) == FileFault::damaged);
        CHECK(check_file_header(good.substr(0, bit / 8), FileKind::ledger_data, 1, kIncarnation) ==
              FileFault::damaged);
    }
    FileHeader newer = make_file_header(FileKind::ledger_data, 1, kIncarnation);
    newer.version = 2;
    seal(newer.block, reinterpret_cast<const char*>(&newer) + sizeof(BlockHeader));
    refused(std::string(reinterpret_cast<const char*>(&newer), sizeof newer), Code::layout_mismatch,
            "another format");
}

static void test_cache() {
    const LedgerBytes ledger = some_ledger(3);
    for (u64 id = 1; id <= 5; ++id) write_ledger(id, ledger);
    const LedgerBytes rewritten = some_ledger(5);
    write_ledger(1, rewritten, 3);
    LedgerFiles files(directory(), kIncarnation, 3);
    const auto is_open = [&](u64 id) {
        return files.read({{id, 0}, 0, 0, 0, 1, 100, ReadFrom::memory}).has_value();
    };
    for (const u64 id : {1, 2, 3, 1, 4}) read(files, id, 0);
    CHECK(files.open_files() == 3);
    CHECK(!is_open(2) && is_open(1) && is_open(3) &&
          is_open(4));                                       // 2 was the one not used for longest
    CHECK(read(files, 1, 4, 1, 100, 3).first_entry() == 4);  // another generation is another file
    const EntryRun kept = read(files, 1, 0);
    files.forget(1);
    CHECK(!is_open(1) && files.open_files() == 1);
    check_entries(kept, ledger);
}

// A ledger that grows while it is read by several threads.
static void test_while_written() {
    const LedgerBytes ledger = some_ledger(2000);
    write_file(path_of(1, "data"), header_of(FileKind::ledger_data, 1));
    write_file(path_of(1, "index"), header_of(FileKind::ledger_index, 1));
    LedgerFiles files(directory(), kIncarnation);
    std::atomic<u64> visible{0};
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i) {
        readers.emplace_back([&] {
            for (u64 next = 0; next < 2000;) {
                const u64 end =
                    visible.load(std::memory_order_acquire);  // pairs with: the writer below
                if (next == end) {
                    std::this_thread::yield();
                    continue;
                }
                const EntryRun run = read(files, 1, next, end - next, 2000);
                check_entries(run, ledger);
                next += run.count();
                CHECK(next <= end);
            }
        });
    }
    const int data = ::open(path_of(1, "data").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    const int index = ::open(path_of(1, "index").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (u64 entry = 0; entry < 2000; ++entry) {
        const std::string_view rest = ledger.data_from(entry);
        const u64 size =
            entry + 1 < 2000 ? ledger.offset(entry + 1) - ledger.offset(entry) : rest.size();
        CHECK(::write(data, rest.data(), size) == static_cast<ssize_t>(size));
        CHECK(::write(index, ledger.index_from(entry).data(), 8) == 8);
        visible.store(entry + 1, std::memory_order_release);  // pairs with: the readers above
    }
    for (std::thread& reader : readers) reader.join();
    ::close(data);
    ::close(index);
    CHECK(files.take_notes().empty());
}

// How often this process has read bytes of files: the cost of following the chain, on any machine.
static u64 reads_so_far() {
    std::ifstream file("/proc/self/io");
    std::string name;
    u64 number = 0;
    while (file >> name >> number)
        if (name == "syscr:") return number;
    CHECK(!"the kernel counts reads");
    return 0;
}

// Without an index each step of the chain is taken once (I71), and entries behind a break are
// refused at once.
static void test_without_index() {
    constexpr u64 kEntries = 4000, kBroken = 3000, kFew = 4;
    const LedgerBytes ledger = some_ledger(kEntries, 1);
    std::string data = header_of(FileKind::ledger_data, 1) + std::string(ledger.data());
    write_file(path_of(1, "data"), data);
    ::unlink(path_of(1, "index").c_str());
    LedgerFiles files(directory(), kIncarnation);
    u64 before = reads_so_far();
    for (u64 entry = 0; entry < kEntries; ++entry) check_entries(read(files, 1, entry), ledger);
    CHECK(reads_so_far() - before < kFew * kEntries);
    // From an entry within, and back from there: from a kept offset.
    for (const u64 entry : {u64{3999}, u64{2100}, u64{1023}, u64{1500}, u64{0}, u64{3}}) {
        before = reads_so_far();
        check_entries(read(files, 1, entry, 5), ledger);
        CHECK(reads_so_far() - before < ChainPlaces::kApart + kFew);
    }
    // In runs, and from the end at once.
    files.forget(1);
    before = reads_so_far();
    for (u64 entry = 0; entry < kEntries;) {
        const EntryRun run = read(files, 1, entry, 100);
        check_entries(run, ledger);
        entry += run.count();
    }
    CHECK(reads_so_far() - before < kFew * kEntries / 100 + 20);
    files.forget(1);
    check_entries(read(files, 1, 3999), ledger);
    before = reads_so_far();
    check_entries(read(files, 1, 2100), ledger);
    CHECK(reads_so_far() - before < ChainPlaces::kApart + kFew);

    data[ledger.offset(kBroken)] = 'x';
    write_file(path_of(1, "data"), data);
    files.forget(1);
    before = reads_so_far();
    for (u64 entry = kBroken + 1; entry < kEntries; ++entry)
        CHECK_ERROR(Code::corrupt, read(files, 1, entry), "0000000000000001.data: entry 3000",
                    "offset " + std::to_string(ledger.offset(kBroken)),
                    "entry " + std::to_string(entry) + " behind it is lost");
    CHECK(reads_so_far() - before < kFew * kEntries);
    check_entries(read(files, 1, kBroken - 1, 9), ledger);
    CHECK_ERROR(Code::corrupt, read(files, 1, kBroken), "entry 3000", "magic");

    // The same with an index that leads nowhere.
    std::string wrong = header_of(FileKind::ledger_index, 1);
    wrong.resize(wrong.size() + 8 * kEntries);
    write_file(path_of(1, "index"), wrong);
    files.forget(1);
    before = reads_so_far();
    for (u64 entry = 0; entry < kEntries; ++entry) {
        if (entry < kBroken)
            check_entries(read(files, 1, entry), ledger);
        else
            CHECK_ERROR(Code::corrupt, read(files, 1, entry), "entry 3000",
                        std::to_string(ledger.offset(kBroken)));
    }
    CHECK(reads_so_far() - before < 4 * kFew * kEntries);
}

// A chain that ended where the data ended is not broken: the file may grow. After forget() it may
// be another file.
static void test_growing_without_index() {
    const LedgerBytes ledger = some_ledger(12, 20);
    const std::string data = header_of(FileKind::ledger_data, 1) + std::string(ledger.data());
    ::unlink(path_of(1, "index").c_str());
    LedgerFiles files(directory(), kIncarnation);
    write_file(path_of(1, "data"), data.substr(0, kFileHeaderSize));
    CHECK_ERROR(Code::corrupt, read(files, 1, 5), "the file ends here, before entry 0");
    const int file = ::open(path_of(1, "data").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    std::size_t whole = 0;
    for (std::size_t size = kFileHeaderSize; size < data.size(); ++size) {
        CHECK(::write(file, data.data() + size, 1) == 1);
        if (whole + 1 < 12 && ledger.offset(whole + 1) == size + 1) ++whole;
        for (const u64 behind : {1, 2, 7})
            CHECK_ERROR(Code::corrupt, read(files, 1, whole + behind), ".data", "at offset");
        if (whole > 0) check_entries(read(files, 1, whole - 1), ledger);
    }
    ::close(file);
    for (u64 entry = 0; entry < 12; ++entry) check_entries(read(files, 1, entry), ledger);
    const LedgerBytes other = some_ledger(12, 55);
    write_file(path_of(1, "data", 1),
               header_of(FileKind::ledger_data, 1) + std::string(other.data()));
    check_entries(read(files, 1, 11, 1, 100, 1), other);
    check_entries(read(files, 1, 11), ledger);
    files.forget(1);
    write_file(path_of(1, "data"), header_of(FileKind::ledger_data, 1) + std::string(other.data()));
    for (const u64 entry : {11, 3, 0}) check_entries(read(files, 1, entry), other);
}

// Kept offsets never make a result worse, for any damage and any order of reads.
static void test_memory_of_the_chain() {
    constexpr u64 kEntries = 24;
    const LedgerBytes ledger = some_ledger(kEntries, 9);
    const std::string data = header_of(FileKind::ledger_data, 1) + std::string(ledger.data());
    const std::string index =
        header_of(FileKind::ledger_index, 1) + std::string(ledger.index_from(0));
    std::mt19937_64 choose(7);
    const auto damage = [&](std::string bytes, std::size_t times) {
        for (std::size_t i = 0; i < times; ++i) {
            const std::size_t at = kFileHeaderSize + choose() % (bytes.size() - kFileHeaderSize);
            bytes[at] = static_cast<char>(bytes[at] ^ 1 << (choose() % 8));
        }
        return bytes;
    };
    const auto answer = [&](LedgerFiles& files, u64 entry) -> std::string {
        try {
            const EntryRun run = read(files, 1, entry, 2);
            check_entries(run, ledger);
            return {};
        } catch (const Error& error) {
            CHECK(error.code == Code::corrupt);
            return error.what();
        }
    };
    for (int trial = 0; trial < 300; ++trial) {
        std::string bad = damage(data, choose() % 3);
        // Mostly sizes of blocks, because they lead the chain astray.
        const u64 hit = choose() % kEntries;
        if (trial % 2 == 0) bad[ledger.offset(hit) + 4] ^= static_cast<char>(8 << choose() % 4);
        write_file(path_of(1, "data"), bad);
        write_file(path_of(1, "index"), damage(index, choose() % 40));
        LedgerFiles files(directory(), kIncarnation);
        for (int i = 0; i < 60; ++i) {
            const u64 entry = choose() % (kEntries + 2);
            LedgerFiles fresh(directory(), kIncarnation);
            const std::string words = answer(fresh, entry);
            if (words.empty()) CHECK(answer(files, entry).empty());
            // more offsets may be known than the first time
            if (!words.empty()) answer(files, entry);
        }
    }
}

// Threads that find and keep offsets of one file at once, while it grows.
static void test_threads_without_index() {
    constexpr u64 kEntries = 3000;
    const LedgerBytes ledger = some_ledger(kEntries, 3);
    const std::string data = header_of(FileKind::ledger_data, 1) + std::string(ledger.data());
    write_file(path_of(1, "data"), data.substr(0, kFileHeaderSize));
    ::unlink(path_of(1, "index").c_str());
    LedgerFiles files(directory(), kIncarnation);
    std::atomic<u64> visible{0};
    std::vector<std::thread> readers;
    for (unsigned i = 0; i < 3; ++i) {
        readers.emplace_back([&, i] {
            std::mt19937_64 choose(i);
            for (u64 next = 0; next < kEntries;) {
                const u64 end =
                    visible.load(std::memory_order_acquire);  // pairs with: the writer below
                if (next == end) {
                    std::this_thread::yield();
                    continue;
                }
                const EntryRun run = read(files, 1, next, end - next, 2000);
                check_entries(run, ledger);
                next += run.count();
                check_entries(read(files, 1, choose() % end), ledger);
                if (i == 0 && choose() % 64 == 0) files.forget(1);
            }
        });
    }
    const int file = ::open(path_of(1, "data").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (u64 entry = 0; entry < kEntries; ++entry) {
        const u64 end = entry + 1 < kEntries ? ledger.offset(entry + 1) : data.size();
        const std::size_t size = end - ledger.offset(entry);
        CHECK(::write(file, data.data() + ledger.offset(entry), size) ==
              static_cast<ssize_t>(size));
        visible.store(entry + 1, std::memory_order_release);  // pairs with: the readers above
    }
    for (std::thread& reader : readers) reader.join();
    ::close(file);
}

int main() {
    test_read();
    test_large_entries();
    test_damaged_index();
    test_damaged_data();
    test_headers();
    test_cache();
    test_while_written();
    test_without_index();
    test_growing_without_index();
    test_memory_of_the_chain();
    test_threads_without_index();
}
