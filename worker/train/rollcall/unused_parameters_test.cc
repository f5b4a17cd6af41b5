#include "worker/train/rollcall/unused_parameters.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/parallel/test_model.h"

namespace muster::train {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST(DescribeUnused, NamesThreeAndCountsTheOthers) {
  EXPECT_THAT(DescribeUnused({"a", "b"}, {0, 4}, false),
              StartsWith("no rank used 1 trainable parameter in step 4: b;"));
  EXPECT_THAT(DescribeUnused({"a", "b", "c", "d", "e"}, {2, 2, 2, 2, 2}, false),
              StartsWith("no rank used 5 trainable parameters in step 2: a, b, c and 2 more;"));
  EXPECT_THAT(DescribeUnused({"a", "b"}, {2, 1}, true),
              StartsWith("no rank used 2 trainable parameters: a (in step 2), b (in step 1);"));
  EXPECT_THAT(DescribeUnused({"a"}, {1}, true), HasSubstr("no further notice"));
  EXPECT_THAT(DescribeUnused({"a"}, {1}, false), Not(HasSubstr("no further notice")));
}

TEST(UnusedParameters, AllRanksNameWhatAnyRankKnowsOnce) {
  parallel::RunRanks(3, [](comm::Communicator& ranks) {
    UnusedParameters unused({"a", "b", "c"});
    EXPECT_FALSE(unused.news());
    if (ranks.rank() == 1) unused.Note(4, {1});
    if (ranks.rank() == 2) unused.Note(4, {1, 2});
    EXPECT_EQ(unused.news(), ranks.rank() != 0);
    const auto notice = unused.Exchange(5, &ranks);
    ASSERT_TRUE(notice.ok()) << notice.status();
    EXPECT_EQ(notice->reason, "PARAMETERS_UNUSED");
    EXPECT_EQ(notice->step, 5);
    EXPECT_THAT(notice->message,
                StartsWith("no rank used 2 trainable parameters in step 4: b, c;"));
    unused.Note(6, {1, 2});
    EXPECT_FALSE(unused.news()) << "all ranks know that these were told";
    unused.Note(7, {0, 1});
    EXPECT_TRUE(unused.news());
  });
}

TEST(UnusedParameters, TheirNumberOfNoticesIsLimited) {
  parallel::RunRanks(1, [](comm::Communicator& ranks) {
    UnusedParameters unused(std::vector<std::string>(20, "expert"));
    for (size_t i = 0; i < 20; ++i) {
      unused.Note(i + 1, {i});
      const bool tells = static_cast<int>(i) < UnusedParameters::kMostNotices;
      EXPECT_EQ(unused.news(), tells) << i;
      if (!tells) continue;
      const auto notice = unused.Exchange(i + 1, &ranks);
      ASSERT_TRUE(notice.ok());
      EXPECT_EQ(notice->message.find("no further notice") != std::string::npos,
                i + 1 == UnusedParameters::kMostNotices);
    }
  });
}

}  // namespace
}  // namespace muster::train
