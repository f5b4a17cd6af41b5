#include "client/api/connection.h"

#include <gtest/gtest.h>

#include "common/status/status.h"
#include "proto/muster/v1/job_service.pb.h"

namespace muster::client {
namespace {

TEST(CheckTexts, ATextThatIsNotUtf8IsNamed) {
  v1::SubmitJobRequest request;
  request.set_job_id("caf\xc3\xa9");
  auto* const tokens = request.mutable_spec()->mutable_data()->mutable_train()->mutable_tokens();
  tokens->add_path("/a");
  EXPECT_TRUE(CheckTexts(request).ok());
  tokens->add_path("/caf\xe9/b");
  EXPECT_EQ(Message(CheckTexts(request)),
            "spec.data.train.tokens.path[1]: '/caf\xe9/b' is not UTF-8; if it is a path, give the "
            "file or folder another name");
}

}  // namespace
}  // namespace muster::client
