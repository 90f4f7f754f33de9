// The entry point of libFuzzer: any bytes as the input of a connection.
// tests/kit/server/fuzz_wire.py builds and runs it.
#include "tests/wire/wire_judge.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    holdfast::test::judge_stream({reinterpret_cast<const char*>(data), size});
    return 0;
}
