// The frames of the wire protocol, and the commands that come with every message: SEND, ACK, FLOW.
//
//   | total size u32 | command size u32 | BaseCommand | entry |       numbers big-endian; only SEND and MESSAGE have an entry
//
// `total size` counts everything behind itself. A BaseCommand is `type` and the field whose number
// is that type. All other commands are passed on unread. Every size is checked against the bytes
// that are there.
#pragma once

#include <string_view>

#include "holdfast/base/protobuf.hpp"
#include "holdfast/base/types.hpp"
#include "holdfast/entry/entry.hpp"

namespace holdfast {

inline constexpr std::size_t kWireSizes = 8;  // of a frame: both sizes

namespace wire_type {
inline constexpr u32 send = 6, send_receipt = 7, message = 9, ack = 10, flow = 11;
inline constexpr u32 first_own = 1000;  // from here on our own commands, which carry entries
}  // namespace wire_type

// The fields' numbers, as in src/holdfast/protocol.
namespace send_field {
inline constexpr u32 producer_id = 1, sequence_id = 2, txnid_least_bits = 4, txnid_most_bits = 5,
                     highest_sequence_id = 6;
}
namespace receipt_field {
inline constexpr u32 producer_id = 1, sequence_id = 2, message_id = 3, highest_sequence_id = 4;
}
namespace message_field {
inline constexpr u32 consumer_id = 1, message_id = 2, redelivery_count = 3, ack_set = 4,
                     consumer_epoch = 5;
}
namespace ack_field {
inline constexpr u32 consumer_id = 1, ack_type = 2, message_id = 3, txnid_least_bits = 6,
                     txnid_most_bits = 7, request_id = 8;
}
namespace flow_field {
inline constexpr u32 consumer_id = 1, permits = 2;
}
namespace id_field {
inline constexpr u32 ledger = 1, entry = 2, partition = 3, ack_set = 5, batch_size = 6;
}

// A BaseCommand, of which only the type and the field of that type are read.
struct WireCommand {
    u64 type = 0;
    std::string_view body;  // of the field with the type's number
};

inline bool read_command(std::string_view bytes, WireCommand& out) {
    // Clients write the type first, and after it only its field.
    std::string_view bodies[3];
    constexpr u32 types[3] = {wire_type::send, wire_type::ack, wire_type::flow};
    ProtoReader in(bytes);
    bool has_type = false;
    while (const u32 tag = in.next()) {
        if (tag == proto_tag(1, Wire::varint)) {
            out.type = in.varint();
            has_type = true;
        } else if (tag == proto_tag(types[0], Wire::bytes)) {
            bodies[0] = in.bytes();
        } else if (tag == proto_tag(types[1], Wire::bytes)) {
            bodies[1] = in.bytes();
        } else if (tag == proto_tag(types[2], Wire::bytes)) {
            bodies[2] = in.bytes();
        } else {
            in.skip(tag);
        }
    }
    for (std::size_t i = 0; i < 3; ++i)
        if (out.type == types[i]) out.body = bodies[i];
    return has_type && !in.bad();
}

struct SendCommand {
    u64 producer = 0;
    u64 sequence = 0;
    u64 highest = 0;  // 0: not given
    bool transaction = false;
};

inline bool read_send(std::string_view bytes, SendCommand& out) {
    namespace f = send_field;
    const auto varint = [](u32 field) { return proto_tag(field, Wire::varint); };
    ProtoReader in(bytes);
    u32 required = 0;
    while (const u32 tag = in.next()) {
        if (tag == varint(f::producer_id)) {
            out.producer = in.varint();
            required |= 1;
        } else if (tag == varint(f::sequence_id)) {
            out.sequence = in.varint();
            required |= 2;
        } else if (tag == varint(f::highest_sequence_id)) {
            out.highest = in.varint();
        } else if (tag == varint(f::txnid_least_bits) || tag == varint(f::txnid_most_bits)) {
            in.varint();
            out.transaction = true;
        } else {
            in.skip(tag);
        }
    }
    return !in.bad() && required == 3;
}

struct FlowCommand {
    u64 consumer = 0;
    u32 permits = 0;
};

inline bool read_flow(std::string_view bytes, FlowCommand& out) {
    ProtoReader in(bytes);
    u32 required = 0;
    while (const u32 tag = in.next()) {
        if (tag == proto_tag(flow_field::consumer_id, Wire::varint)) {
            out.consumer = in.varint();
            required |= 1;
        } else if (tag == proto_tag(flow_field::permits, Wire::varint)) {
            out.permits = static_cast<u32>(in.varint());
            required |= 2;
        } else {
            in.skip(tag);
        }
    }
    return !in.bad() && required == 3;
}

}  // namespace holdfast
