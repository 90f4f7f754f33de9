// SIGKILL at every point of the writer: entries that were reported durable are in the files.
#include "tests/log/writer_world.hpp"

using namespace holdfast;
using namespace holdfast::test;

namespace {

constexpr int kRounds = 6;

std::string entry(int number) {
    return "entry " + std::to_string(number) +
           std::string(static_cast<std::size_t>(number) * 1500, '.');
}

// Publishes round after round, each to two topics, and reports what was durable after each.
void work(World& world, const Line& line, Point point, u64 countdown) {
    arm(point, PointAction::kill, countdown);
    world.start_writer(SyncMode::group);
    world.use_journal("journal");
    for (int i = 1; i <= kRounds; ++i) {
        world.publish(1, entry(i), false);
        const u64 d = world.publish(2, entry(i), true);
        world.wait_durable(d);
        line.tell(static_cast<char>('0' + i));
    }
}

// Returns the entries of a possibly torn journal, by topic, up to the first unsound block.
std::map<u64, std::vector<std::string>> journaled(const std::string& file) {
    std::map<u64, std::vector<std::string>> out;
    u64 d = 1;
    for (std::size_t at = kRoundAlign; at + sizeof(RoundHeader) <= file.size();) {
        const auto header = get<RoundHeader>(file, at);
        if (verify(header.block, d, sizeof(RoundFields)) != BlockFault::none ||
            header.block.kind != kRoundBlock ||
            verify_payload(header.block, &header.fields) != BlockFault::none)
            break;
        std::map<u64, std::vector<std::string>> mine;
        std::size_t block = at + sizeof header;
        const std::size_t end = block + header.fields.bytes;
        u64 next = d;
        while (block < end) {
            if (block + sizeof(BlockHeader) > file.size()) return out;
            const auto each = get<BlockHeader>(file, block);
            if (verify(each, next, static_cast<u32>(file.size())) != BlockFault::none ||
                block + sizeof each + each.size > file.size() ||
                verify_payload(each, file.data() + block + sizeof each) != BlockFault::none)
                return out;
            const std::string text = file.substr(block + sizeof each + 16, each.size - 16);
            FrameReader reader(bytes_of(text));
            while (!reader.at_end()) {
                const EventView event = reader.next();
                const PublishView view(event.body);
                mine[view.topic()].emplace_back(
                    reinterpret_cast<const char*>(view.entries().data()), view.entries().size());
                ++next;
            }
            block += padded(sizeof each + each.size);
        }
        for (auto& [topic, entries] : mine)
            out[topic].insert(out[topic].end(), entries.begin(), entries.end());
        d = next;
        at += round_space(header.fields.bytes);
    }
    return out;
}

// Returns the sound entries at the start of a ledger's file, by its index.
std::vector<std::string> ledger_entries(const std::string& path) {
    std::vector<std::string> out;
    if (::access((path + ".data").c_str(), F_OK) != 0 ||
        ::access((path + ".index").c_str(), F_OK) != 0)
        return out;
    const std::string data = read_file(path + ".data"), index = read_file(path + ".index");
    for (std::size_t row = kFileHeaderSize; row + 8 <= index.size(); row += 8) {
        std::size_t at = get<u64>(index, row);
        if (at + sizeof(BlockHeader) > data.size()) break;
        out.push_back(block_at(data, at, kEntryBlock, out.size()));
    }
    return out;
}

// True if the victim died at the point.
bool kill_at(Point point, u64 countdown) {
    World world;
    world.writer.reset();
    const Line line;
    const int status = finish(start([&] { work(world, line, point, countdown); }));
    const bool died = WIFSIGNALED(status);
    CHECK(died ? WTERMSIG(status) == SIGKILL : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    line.tell('.');
    int durable = 0;
    for (char word = line.wait(); word != '.'; word = line.wait()) durable = word - '0';
    CHECK(died ? durable < kRounds : durable == kRounds);
    const auto in_journal = journaled(world.journal("journal"));
    for (const u64 topic : {1, 2}) {
        std::vector<std::string> expected;
        for (int i = 1; i <= durable; ++i) expected.push_back(entry(i));
        for (const auto& found :
             {in_journal.contains(topic) ? in_journal.at(topic) : std::vector<std::string>{},
              ledger_entries(world.directory.path() + "/ledgers/000000000000000" +
                             std::to_string(topic))}) {
            CHECK(found.size() >= expected.size());
            CHECK(std::equal(expected.begin(), expected.end(), found.begin()));
            for (std::size_t i = expected.size(); i < found.size(); ++i)
                CHECK(found[i] ==
                      entry(static_cast<int>(i) + 1));  // ahead, but only with sent ones
        }
    }
    return died;
}

}  // namespace

int main() {
    each_point<WriterPoint>([](Point point) {
        for (const u64 countdown : {1, 2, 5}) {
            if (point == WriterPoint::ledger_open && countdown == 5) continue;  // two ledgers
            CHECK(kill_at(point, countdown));
        }
    });
    CHECK(!kill_at(WriterPoint::round_done, 1000));
}
