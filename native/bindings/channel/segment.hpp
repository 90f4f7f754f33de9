// ChannelSegment: a channel that is open, without a role in it.
#pragma once

#include <memory>
#include <string>

#include "holdfast/shm/segment.hpp"

namespace holdfast::bindings {

struct ChannelSegment {
    std::shared_ptr<Segment> segment;
};

}  // namespace holdfast::bindings
