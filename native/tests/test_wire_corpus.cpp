// The fuzzer of the wire codec without its compiler: the streams in $HOLDFAST_CORPUS, and random changes of them.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "wire_judge.hpp"

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

int main() {
    const std::vector<std::string> all = streams();
    const char* seed = std::getenv("HOLDFAST_CORPUS_SEED");
    std::mt19937_64 random(seed != nullptr ? std::strtoull(seed, nullptr, 10) : 1);
    int judged = 0;
    for (const std::string& each : all) {
        judge_stream(each);
        for (int round = 0; round < rounds(40, 3000); ++round, ++judged)
            judge_stream(changed(each, all[random() % all.size()], random));
    }
    std::printf("%zu streams, %d changes of them\n", all.size(), judged);
}
