// The headers that tests with gRPC include.
#pragma once

#include "third_party/precompiled/tests.hh"

#include <google/protobuf/util/message_differencer.h>

#include "third_party/precompiled/rpc.hh"
