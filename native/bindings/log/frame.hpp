// Functions with which other bindings add to a frame.
#pragma once

#include <nanobind/nanobind.h>

#include "holdfast/log/frame_writer.hpp"

namespace holdfast::bindings {

// The writer inside a `_core.Frame`, valid while that lives and nothing is taken from it. Raises TypeError for others.
FrameWriter& writer_of(nanobind::handle frame);

}  // namespace holdfast::bindings
