// All holds on a service instance.
#pragma once

#include "holdfast/service/provider.hpp"
#include "holdfast/service/proxy.hpp"
