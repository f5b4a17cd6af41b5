// The headers that most files of the command line include.
#pragma once

#include "third_party/precompiled/rpc.hh"

#include <CLI/CLI.hpp>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
