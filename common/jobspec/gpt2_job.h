// A valid job, and a function that makes a job from a text. For tests.
#ifndef MUSTER_COMMON_JOBSPEC_GPT2_JOB_H_
#define MUSTER_COMMON_JOBSPEC_GPT2_JOB_H_

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <string>

#include "proto/muster/v1/job_spec.pb.h"

namespace muster::jobspec {

inline constexpr char kGpt2Job[] = R"(
  name: "tiny" world_size: 2
  model { gpt2 { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 } }
  data {
    train { tokens { path: "/d/train.bin" } }
    validate { tokens { path: "/d/val.bin" } }
  }
  optimizer { adamw { lr: 0.001 } }
  schedule { warmup_cosine { warmup_steps: 10 } }
  batch { per_rank: 8 }
  stages { fit { steps: 100 validate_every: 10 } }
  stages { validate {} }
  checkpoint { directory: "/d/ckpt" every_steps: 20 }
  export { path: "/d/out.safetensors" })";

inline v1::JobSpec Parse(const std::string& text) {
  v1::JobSpec spec;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &spec)) << text;
  return spec;
}

}  // namespace muster::jobspec

#endif  // MUSTER_COMMON_JOBSPEC_GPT2_JOB_H_
