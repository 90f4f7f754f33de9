// The fuzzer of the wire codec without libFuzzer: the streams in $HOLDFAST_CORPUS, and random
// changes of them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/wire/wire_judge.hpp"

using namespace holdfast;
using namespace holdfast::test;

static std::vector<std::string> streams() {
    const char* folder = std::getenv("HOLDFAST_CORPUS");
    CHECK(folder != nullptr);
    std::vector<std::filesystem::path> paths;
    for (const auto& each : std::filesystem::directory_iterator(folder))
        paths.push_back(each.path());
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> out;
    for (const auto& path : paths) {
        std::ifstream in(path, std::ios::binary);
        out.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    CHECK(!out.empty());
    return out;
}

static std::string changed(std::string stream, const std::string& other, std::mt19937_64& random) {
    for (u64 i = 1 + random() % 4; i > 0 && stream.size() > 1; --i) {
        const std::size_t at = 1 + random() % (stream.size() - 1);
        switch (random() % 4) {
            case 0:
                stream[at] = static_cast<char>(random());
                break;
            case 1:
                stream.erase(at, 1 + random() % 9);
                break;
            case 2:
                stream.insert(at, std::string(1 + random() % 9, static_cast<char>(random())));
                break;
            default:
                stream.insert(at, other.substr(random() % (other.size() + 1), random() % 200));
        }
    }
    return stream;
}

// Stores the stream in $HOLDFAST_CORPUS_FOUND before it is judged, in case this process dies.
static void judge(const std::string& stream) {
    constexpr std::size_t kNoteBytes = 1 << 20;
    static char* const note = [] {
        const char* path = std::getenv("HOLDFAST_CORPUS_FOUND");
        if (path == nullptr) return static_cast<char*>(nullptr);
        const int file = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(file >= 0 && ::ftruncate(file, kNoteBytes) == 0);
        void* at = ::mmap(nullptr, kNoteBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(at != MAP_FAILED && ::close(file) == 0);
        return static_cast<char*>(at);
    }();
    const u64 size = stream.size();
    if (note != nullptr && size + sizeof size <= kNoteBytes) {
        std::memcpy(note, &size, sizeof size);
        std::memcpy(note + sizeof size, stream.data(), stream.size());
    }
    judge_stream(stream);
}

int main() {
    const std::vector<std::string> all = streams();
    const char* seed = std::getenv("HOLDFAST_CORPUS_SEED");
    std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
    int judged = 0;
    for (const std::string& each : all) {
        judge(each);
        for (int round = 0; round < rounds(40, 3000); ++round, ++judged)
            judge(changed(each, all[random() % all.size()], random));
    }
    std::printf("%zu streams, %d changes of them\n", all.size(), judged);
}
