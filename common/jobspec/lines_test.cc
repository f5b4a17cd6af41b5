#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/jobspec/changes.h"
#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {
namespace {

using ::testing::ElementsAre;

TEST(LinesOf, NamesEveryValueThatIsSetInTheOrderOfTheFields) {
  v1::JobSpec spec;
  spec.set_name("a\nb");
  spec.mutable_optimizer()->mutable_adamw()->set_lr(0.1);
  spec.mutable_optimizer()->mutable_adamw()->add_betas(0.9);
  spec.mutable_optimizer()->mutable_adamw()->set_eps(0);
  spec.set_precision(v1::JobSpec::BFLOAT16);
  spec.add_stages()->mutable_validate();
  EXPECT_THAT(
      LinesOf(spec),
      ElementsAre(Line{"name", "\"a\\nb\""}, Line{"optimizer", "{}"}, Line{"optimizer.adamw", "{}"},
                  Line{"optimizer.adamw.lr", "0.1"}, Line{"optimizer.adamw.betas[0]", "0.9"},
                  Line{"optimizer.adamw.eps", "0"}, Line{"precision", "BFLOAT16"},
                  Line{"stages[0]", "{}"}, Line{"stages[0].validate", "{}"}));
}

TEST(LinesOf, ShowsEveryBitOfANumber) {
  v1::JobSpec one, other;
  one.set_clip_grad_norm(0.1);
  other.set_clip_grad_norm(std::nextafter(0.1, 1));
  EXPECT_NE(LinesOf(one), LinesOf(other));
}

TEST(LinesOf, SortsAMapByItsKeys) {
  v1::JobSpec spec;
  auto& options = *spec.mutable_model()->mutable_plugin()->mutable_options();
  options["b"] = "2";
  options["a"] = "1";
  options["c"] = "";
  EXPECT_THAT(LinesOf(spec), ElementsAre(Line{"model", "{}"}, Line{"model.plugin", "{}"},
                                         Line{"model.plugin.options[\"a\"]", "\"1\""},
                                         Line{"model.plugin.options[\"b\"]", "\"2\""},
                                         Line{"model.plugin.options[\"c\"]", "\"\""}));
}

}  // namespace
}  // namespace muster::jobspec
