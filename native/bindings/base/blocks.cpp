// Blocks for the store: sealing one, checking one, and walking a run of them. Bytes that are read are never trusted.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <nanobind/nanobind.h>

#include <string>
#include <string_view>

#include "bindings/base/gil.hpp"
#include "holdfast/base/block.hpp"
#include "holdfast/base/errors.hpp"
#include "holdfast/base/file_header.hpp"

namespace nb = nanobind;

namespace holdfast::bindings {

namespace {

constexpr std::size_t kLongWork = std::size_t{64} << 10;  // bytes from which on others may run

// Bytes that the caller lends for a call.
class Lent {
 public:
    explicit Lent(nb::handle object) {
        if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
    }
    Lent(const Lent&) = delete;
    ~Lent() { PyBuffer_Release(&view_); }

    const char* data() const { return static_cast<const char*>(view_.buf); }
    std::size_t size() const { return static_cast<std::size_t>(view_.len); }

 private:
    Py_buffer view_{};
};

u32 checksum(nb::handle buffer, u32 seed) {
    const Lent lent(buffer);
    if (lent.size() < kLongWork) return crc32c(seed, lent.data(), lent.size());
    const GilRelease release;
    return crc32c(seed, lent.data(), lent.size());
}

// A whole block with the sum over its payload, without padding.
nb::bytes seal_block(u8 kind, u64 tag, u64 time, nb::handle payload) {
    const Lent lent(payload);
    if (lent.size() > 0xffffffffu - sizeof(BlockHeader))
        throw Error(Code::misuse, "a block of " + std::to_string(lent.size()) +
                                      " bytes is too large; cut it in pieces below 4 GiB");
    PyObject* out = PyBytes_FromStringAndSize(
        nullptr, static_cast<Py_ssize_t>(sizeof(BlockHeader) + lent.size()));
    if (out == nullptr) throw nb::python_error();
    char* bytes = PyBytes_AS_STRING(out);
    const auto fill = [&] {
        const BlockHeader header =
            make_block(kind, kFullChecksum, static_cast<u32>(lent.size()), tag, time, lent.data());
        std::memcpy(bytes, &header, sizeof header);
        if (lent.size() > 0) std::memcpy(bytes + sizeof header, lent.data(), lent.size());
    };
    if (lent.size() < kLongWork) {
        fill();
    } else {
        const GilRelease release;
        fill();
    }
    return nb::steal<nb::bytes>(out);
}

struct Looked {
    BlockFault fault;
    BlockHeader header;
};

// The block at `offset`. Its tag is for the caller to judge; its sum must cover the payload.
Looked look(const char* data, std::size_t size, std::size_t offset) {
    Looked out{BlockFault::size, {}};
    if (offset > size || size - offset < sizeof(BlockHeader)) return out;
    std::memcpy(&out.header, data + offset, sizeof(BlockHeader));
    const std::size_t room = size - offset - sizeof(BlockHeader);
    out.fault = verify(out.header, out.header.tag,
                       room > 0xffffffffu ? 0xffffffffu : static_cast<u32>(room));
    if (out.fault == BlockFault::none && !(out.header.flags & kFullChecksum))
        out.fault = BlockFault::reserved;
    if (out.fault == BlockFault::none)
        out.fault = verify_payload(out.header, data + offset + sizeof(BlockHeader));
    return out;
}

// (kind, tag, time, size of the payload), or the name of what is wrong.
nb::object open_block(nb::handle buffer, std::size_t offset) {
    const Lent lent(buffer);
    const Looked looked = look(lent.data(), lent.size(), offset);
    if (looked.fault != BlockFault::none) {
        const std::string_view name = fault_name(looked.fault);
        return nb::str(name.data(), name.size());
    }
    return nb::make_tuple(looked.header.kind, looked.header.tag, looked.header.time,
                          looked.header.size);
}

// Walks blocks of one kind with rising tags, each padded to 8 bytes. Returns the number of sound blocks, their bytes, the
// fault of the next one, and their offsets as a ledger's index has them. The fault is "" at the end of the buffer.
nb::tuple walk_blocks(nb::handle buffer, u8 kind, u64 first_tag, u64 base) {
    const Lent lent(buffer);
    std::string index;
    std::string_view fault;
    std::size_t at = 0;
    u64 count = 0;
    {
        const GilRelease release;
        while (at < lent.size()) {
            const Looked looked = look(lent.data(), lent.size(), at);
            BlockFault wrong = looked.fault;
            if (wrong == BlockFault::none && looked.header.kind != kind) wrong = BlockFault::kind;
            if (wrong == BlockFault::none && looked.header.tag != first_tag + count)
                wrong = BlockFault::tag;
            const u64 space = block_space(looked.header.size);
            if (wrong == BlockFault::none && space > lent.size() - at) wrong = BlockFault::size;
            if (wrong != BlockFault::none) {
                fault = fault_name(wrong);
                break;
            }
            const u64 offset = base + at;
            index.append(reinterpret_cast<const char*>(&offset), sizeof offset);
            at += space;
            ++count;
        }
    }
    return nb::make_tuple(count, at, nb::str(fault.data(), fault.size()),
                          nb::bytes(index.data(), index.size()));
}

}  // namespace

void bind_blocks(nb::module_& module) {
    module.def("crc32c", &checksum, nb::arg("buffer"), nb::arg("seed") = 0);
    module.def("seal_block", &seal_block, nb::arg("kind"), nb::arg("tag"), nb::arg("time"),
               nb::arg("payload"));
    module.def("open_block", &open_block, nb::arg("buffer"), nb::arg("offset") = 0);
    module.def("walk_blocks", &walk_blocks, nb::arg("buffer"), nb::arg("kind"),
               nb::arg("first_tag"), nb::arg("base"));
}

}  // namespace holdfast::bindings
