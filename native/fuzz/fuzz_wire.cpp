// What libFuzzer calls: any bytes as the input of a connection. Built and run by tests/kit/server/fuzz_wire.py.
#include "tests/wire/wire_judge.hpp"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
    holdfast::test::judge_stream({reinterpret_cast<const char*>(data), size});
    return 0;
}
