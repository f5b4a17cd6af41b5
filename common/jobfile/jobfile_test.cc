#include "common/jobfile/jobfile.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/files/temp_dir.h"
#include "common/rpc/error.h"
#include "common/status/status.h"

namespace muster::jobfile {
namespace {

using ::testing::HasSubstr;

constexpr char kGood[] = R"(name: tiny
world_size: 2
device: cpu
seed: 7
model:
  gpt2: {vocab_size: 256, context: 32, layers: 2, heads: 4, width: 64, tied: false}
  weights: ../w/model.safetensors
data:
  train:    {tokens: {path: train.bin, dtype: uint16}}
  validate: {tokens: {path: [val.bin, /abs/val2.bin], dtype: uint32}}
strategy:
  ddp:
optimizer: {adamw: {lr: 3.0e-4, betas: [0.9, 0.95], weight_decay: 0}}
schedule: {constant: {}}
batch: {per_rank: 8, order: sequential, last: pad}
precision: float32
clip_grad_norm: 1
stages: [{fit: {steps: 10, validate_every: 5}}, {validate: {}}]
checkpoint: {directory: ./ckpt}
export: {path: out/model.safetensors}
restart: {max_restarts: 0}
)";

// A job that generates, with this value of `prompts`.
absl::StatusOr<JobFile> ParsePrompts(const std::string& prompts) {
  return ParseJobFile(
      absl::StrCat("name: tiny\nworld_size: 1\nmodel: {gpt2: {vocab_size: 8, "
                   "context: 4, layers: 1, heads: 1, width: 8}}\nstages:\n"
                   "- predict: {output: o.json, generate: {max_tokens: 1, prompts: ",
                   prompts, "}}\n"),
      "j", "/jobs");
}

TEST(ParseJobFile, PromptsAreAListOfListsOrAFile) {
  const auto lists = ParsePrompts("[[1, 2], [3]]");
  ASSERT_TRUE(lists.ok()) << lists.status();
  const v1::GenerateSpec& generate = lists->spec.stages(0).predict().generate();
  ASSERT_EQ(generate.prompts_size(), 2);
  EXPECT_THAT(generate.prompts(0).tokens(), ::testing::ElementsAre(1, 2));
  EXPECT_THAT(generate.prompts(1).tokens(), ::testing::ElementsAre(3));
  EXPECT_EQ(lists->lines.at("stages[0].predict.generate.prompts[1][0]"), 5);

  const auto file = ParsePrompts("p.json");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->spec.stages(0).predict().generate().prompts_from(), "/jobs/p.json");

  const auto problem = [](const std::string& prompts) {
    return std::string(ParsePrompts(prompts).status().message());
  };
  const std::string path = "j:5: stages[0].predict.generate.prompts";
  EXPECT_THAT(problem("[1, 2]"), HasSubstr(path + "[0]: found '1'; allowed: a list"));
  EXPECT_THAT(problem("[[1], []]"), HasSubstr(path + "[1]: is missing or empty"));
  EXPECT_THAT(problem("[[a]]"), HasSubstr(path + "[0][0]: found 'a'"));
  EXPECT_THAT(problem("{a: 1}"), HasSubstr(path));
}

TEST(ParseJobFile, ReadsEveryKindOfField) {
  const auto job = ParseJobFile(kGood, "job.yaml", "/jobs/a");
  ASSERT_TRUE(job.ok()) << job.status();
  v1::JobSpec expected;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    name: "tiny" world_size: 2 device: CPU seed: 7
    model {
      gpt2 { vocab_size: 256 context: 32 layers: 2 heads: 4 width: 64 tied: false }
      weights: "/jobs/w/model.safetensors"
    }
    data {
      train { tokens { path: "/jobs/a/train.bin" dtype: UINT16 } }
      validate { tokens { path: ["/jobs/a/val.bin", "/abs/val2.bin"] dtype: UINT32 } }
    }
    strategy { ddp {} }
    optimizer { adamw { lr: 3e-4 betas: [0.9, 0.95] weight_decay: 0 } }
    schedule { constant {} }
    batch { per_rank: 8 order: SEQUENTIAL last: PAD }
    precision: FLOAT32 clip_grad_norm: 1
    stages { fit { steps: 10 validate_every: 5 } }
    stages { validate {} }
    checkpoint { directory: "/jobs/a/ckpt" }
    export { path: "/jobs/a/out/model.safetensors" }
    restart { max_restarts: 0 })",
                                                            &expected));
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(job->spec, expected))
      << job->spec.DebugString();
  EXPECT_EQ(job->lines.at("world_size"), 2);
  EXPECT_EQ(job->lines.at("model.gpt2.heads"), 6);
  EXPECT_EQ(job->lines.at("data.train.tokens.path[0]"), 9);
  EXPECT_EQ(job->lines.at("stages[1]"), 18);
}

TEST(ParseJobFile, AListOfOneMayBeItsElement) {
  std::string text = kGood;
  text.replace(text.find("[{fit: {steps: 10, validate_every: 5}}, {validate: {}}]"),
               sizeof("[{fit: {steps: 10, validate_every: 5}}, {validate: {}}]") - 1,
               "{validate: }");
  const auto job = ParseJobFile(text, "job.yaml", "/");
  ASSERT_TRUE(job.ok()) << job.status();
  ASSERT_EQ(job->spec.stages_size(), 1);
  EXPECT_TRUE(job->spec.stages(0).has_validate());
}

TEST(ParseJobFile, ReportsEverythingAtOnceInTheOrderOfTheLines) {
  const auto job = ParseJobFile(R"(name: Tiny
wrld_size: 2
model:
  gpt2: {vocab_size: -1, context: 1.5, layers: two, heads: 99999999999, width: 64, heads: 1}
  mlp: {}
data:
  train: {tokens: {path: ~, dtype: uint8}}
strategy: ddp
optimizer: {adamw: {lr: .nan, betas: 0.9, eps: "1e-8"}}
batch: 8
clip_grad_norm: yes
stages: {fit: {steps: 10}, validate: {}}
seed:
)",
                                "job.yaml", "/");
  ASSERT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ErrorReason(job.status()), "JOB_SPEC_INVALID");
  EXPECT_EQ(
      Message(job.status()),
      "job.yaml: 17 problems\n"
      "job.yaml:1: name: found 'Tiny'; allowed: 1 to 40 of a-z, 0-9 and '-', the first one no '-'\n"
      "job.yaml:2: wrld_size: unknown key; did you mean world_size?; allowed: name, world_size, "
      "device, seed, model, data, strategy, optimizer, schedule, batch, precision, clip_grad_norm, "
      "stages, checkpoint, export, restart, loss, on_nan, loss_scale, priority, "
      "activation_checkpointing, "
      "profile, trainable, uneven_inputs, time_limit, when_cut_off, watchdog, threads, "
      "collectives, start, ema, evaluation, metrics\n"
      "job.yaml:4: model.gpt2.vocab_size: found '-1', which does not fit; allowed: a whole "
      "number, 1 to 2147483647\n"
      "job.yaml:4: model.gpt2.context: found '1.5'; allowed: a whole number, 1 to 16777216\n"
      "job.yaml:4: model.gpt2.layers: found 'two'; allowed: a whole number, 1 to 100000\n"
      "job.yaml:4: model.gpt2.heads: found '99999999999', which does not fit; allowed: a whole "
      "number, 1 to 16777216\n"
      "job.yaml:5: model.mlp: only one of gpt2, mlp, llama, convnet, torchscript, plugin, "
      "exported, hf is allowed, and line 4 has gpt2\n"
      "job.yaml:7: data.train.tokens.dtype: found 'uint8'; allowed: one of: uint16, uint32; "
      "did you "
      "mean uint16?\n"
      "job.yaml:7: data.train.tokens.path: is missing; allowed: one or more paths, "
      "data.train.per_rank, or mixture\n"
      "job.yaml:8: strategy: found 'ddp'; allowed: a mapping with the keys ddp, sharded_ddp, "
      "fsdp (write {ddp: ...})\n"
      "job.yaml:9: optimizer.adamw.lr: found '.nan'; allowed: a finite number\n"
      "job.yaml:9: optimizer.adamw.eps: found the text '1e-8'; allowed: a finite number; "
      "write 1e-8 without quotes\n"
      "job.yaml:9: optimizer.adamw.betas: found a list of 1; allowed: 2 numbers, such as [0.9, "
      "0.999]\n"
      "job.yaml:10: batch: found '8'; allowed: a mapping with the keys per_rank, accumulate, "
      "order, "
      "last\n"
      "job.yaml:11: clip_grad_norm: found 'yes'; allowed: a finite number\n"
      "job.yaml:12: stages[0].validate: only one of fit, validate, test, predict is allowed, "
      "and line 12 has fit\n"
      "job.yaml:13: seed: has no value; allowed: a whole number from 0 to "
      "18446744073709551615");
  EXPECT_EQ(Problems(job.status()).problems_size(), 17);
}

TEST(ParseJobFile, GivesTheLineOfTheNearestFieldAroundAMissingOne) {
  std::string text = kGood;
  text.replace(text.find("per_rank: 8"), sizeof("per_rank: 8") - 1, "accumulate: 1");
  const auto job = ParseJobFile(text, "job.yaml", "/");
  EXPECT_EQ(Message(job.status()),
            "job.yaml: 1 problem\n"
            "job.yaml:15: batch.per_rank: is missing or 0; allowed: 1 to 16777216");
}

// kGood with another model: its first lines are 5 and 6.
std::string WithModel(const std::string& model) {
  std::string text = kGood;
  const size_t begin = text.find("  gpt2:");
  text.replace(begin, text.find("data:") - begin, model);
  return text;
}

TEST(ParseJobFile, TheValuesOfAMapAreTheirText) {
  const auto job = ParseJobFile(WithModel(R"(  plugin:
    path: a/b.so
    name: focal
    options: {width: 32, gamma: 2.0e+0, tied: true, note: "5", empty: "", a.b: c, path: x/y}
)"),
                                "job.yaml", "/jobs");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.model().plugin().path(), "/jobs/a/b.so");
  const auto& options = job->spec.model().plugin().options();
  const std::map<std::string, std::string> expected = {
      {"width", "32"}, {"gamma", "2.0e+0"}, {"tied", "true"}, {"note", "5"},
      {"empty", ""},   {"a.b", "c"},        {"path", "x/y"}};
  EXPECT_EQ((std::map<std::string, std::string>(options.begin(), options.end())), expected);
  EXPECT_EQ(job->lines.at("model.plugin.options.width"), 9);
}

TEST(ParseJobFile, AMapMayBeEmpty) {
  for (const char* options : {"{}", "~", ""}) {
    const auto job =
        ParseJobFile(WithModel(absl::StrCat(
                         "  plugin:\n    path: a\n    name: b\n    options: ", options, "\n")),
                     "j", "/");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_TRUE(job->spec.model().plugin().options().empty());
  }
}

TEST(ParseJobFile, RefusesWhatIsNoTextInAMap) {
  const auto job = ParseJobFile(WithModel(R"(  plugin:
    path: a
    name: b
    options:
      width: 1
      list: [1]
      width: 2
      none: ~
      inner: {a: b}
      [c]: d
)"),
                                "j", "/");
  EXPECT_EQ(Message(job.status()),
            "j: 5 problems\n"
            "j:11: model.plugin.options.list: found a list; allowed: a text\n"
            "j:12: model.plugin.options.width: given twice, first in line 10\n"
            "j:13: model.plugin.options.none: found nothing; allowed: a text\n"
            "j:14: model.plugin.options.inner: found a mapping; allowed: a text\n"
            "j:15: model.plugin.options?15: found a list as a key; allowed: a name");
  const auto text =
      ParseJobFile(WithModel("  plugin: {path: a, name: b, options: fast}\n"), "j", "/");
  EXPECT_EQ(
      Message(text.status()),
      "j: 1 problem\nj:6: model.plugin.options: found 'fast'; allowed: a mapping (name: value)");
}

// The key `weights` takes a path or a mapping.
TEST(ParseJobFile, AMappingMayHaveTheNameOfAnotherField) {
  const std::string model =
      "  gpt2: {vocab_size: 256, context: 32, layers: 2, heads: 4, width: 64}\n";
  const auto job = ParseJobFile(WithModel(model + R"(  weights:
    file: ../w/model.safetensors
    take: "transformer.*"
    rename: {"backbone.*": "transformer.*", a.b: c}
    missing: initial
)"),
                                "j", "/jobs/a");
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->spec.model().weights().empty());
  const v1::WeightsSpec& weights = job->spec.model().weights_from();
  EXPECT_EQ(weights.file(), "/jobs/w/model.safetensors");
  ASSERT_EQ(weights.take_size(), 1);
  EXPECT_EQ(weights.take(0), "transformer.*");
  EXPECT_EQ(weights.rename().at("backbone.*"), "transformer.*");
  EXPECT_EQ(weights.rename().at("a.b"), "c");
  EXPECT_EQ(weights.missing(), v1::WeightsSpec::INITIAL);
  EXPECT_EQ(job->lines.at("model.weights.file"), 8);

  const auto message = [&](const std::string& text) {
    return Message(ParseJobFile(WithModel(model + text), "j", "/").status());
  };
  EXPECT_EQ(message("  weights: {tak: x, missing: never, rename: {a: b*}}\n"),
            "j: 4 problems\n"
            "j:7: model.weights.tak: unknown key; did you mean take?; allowed: file, take, rename, "
            "missing, pad_vocabulary\n"
            "j:7: model.weights.missing: found 'never'; allowed: one of: refuse, initial\n"
            "j:7: model.weights.file: is missing; allowed: a path\n"
            "j:7: model.weights.rename.a: found 'a': 'b*'; allowed: no * in both names, or one * "
            "in both");
  EXPECT_THAT(message("  weights: w\n  weights: {file: w}\n"),
              HasSubstr("j:8: model.weights: given twice, first in line 7"));
  // The field's name in the message is not a key of the file.
  EXPECT_THAT(message("  weights_from: {file: w}\n"),
              HasSubstr("j:7: model.weights_from: unknown key"));
  EXPECT_THAT(message("  weights_from: {file: w}\n"),
              HasSubstr("torchscript, plugin, exported, hf, weights, tokenizer"));
}

TEST(ParseJobFile, RefusesWhatOnlyAShellReplaces) {
  const auto problem = [](const std::string& path) {
    std::string text = kGood;
    text.replace(text.find("./ckpt"), 6, path);
    return Message(ParseJobFile(text, "job.yaml", "/").status());
  };
  EXPECT_THAT(problem("~/ckpt"),
              HasSubstr("checkpoint.directory: found '~/ckpt'; '~' has no meaning here"));
  EXPECT_THAT(problem("~ann/ckpt"), HasSubstr("'~ann' has no meaning here"));
  EXPECT_THAT(problem("$SCRATCH/ckpt"), HasSubstr("'$SCRATCH' has no meaning here"));
  EXPECT_THAT(problem("/s/$USER"), HasSubstr("'$USER' has no meaning here"));
  EXPECT_THAT(problem("'${SCRATCH}/ckpt'"), HasSubstr("'${' has no meaning here"));
  EXPECT_THAT(problem("/s/$(id -un)"), HasSubstr("'$(' has no meaning here"));
  for (const char* name : {"ckpt~", "a~/b", "~a", "us$", "us$/b", "$-x"}) {
    EXPECT_EQ(problem(name), "") << name;
  }
}

// The problems of a small job with another fit stage.
std::string ProblemsOfFit(const std::string& fit) {
  const std::string job =
      "name: x\nworld_size: 1\nseed: 1\n"
      "model: {mlp: {inputs: 4, hidden: [4], classes: 2}}\n"
      "data: {train: {safetensors: {path: x}}}\n"
      "optimizer: {sgd: {lr: 0.1}}\nbatch: {per_rank: 1}\n";
  return Message(
      ParseJobFile(absl::StrCat(job, "stages: [{fit: ", fit, "}]\n"), "job.yaml", "/folder")
          .status());
}

TEST(ParseJobFile, ARefusedChoiceIsNoMissingOneToo) {
  EXPECT_EQ(ProblemsOfFit("{steps: 10}"), "");
  for (const char* number : {"1_000", "1e3", "1000.0", "\"1000\""}) {
    const std::string problems = ProblemsOfFit(absl::StrCat("{steps: ", number, "}"));
    EXPECT_THAT(problems, HasSubstr("1 problem\n")) << problems;
    EXPECT_THAT(problems, HasSubstr("; write 1000")) << problems;
  }
  for (const char* fit : {"{steps: ten}", "{steps: }", "{steps: [10]}", "{stepps: 10}",
                          "{epochs: 1.5}", "{epochs: -1e3}"}) {
    const std::string problems = ProblemsOfFit(fit);
    EXPECT_THAT(problems, HasSubstr("1 problem\n")) << problems;
    EXPECT_THAT(problems, testing::Not(HasSubstr("; write"))) << problems;
  }
  // A mistyped key does not count as another choice.
  EXPECT_THAT(ProblemsOfFit("{stepps: 1, epochs: 10}"), HasSubstr("1 problem\n"));
  EXPECT_THAT(ProblemsOfFit("{foo: 1}"), HasSubstr("nothing is chosen"));
}

TEST(ParseJobFile, ANumberThatIsTooLargeIsToldTheLargest) {
  EXPECT_THAT(ProblemsOfFit("{steps: 99999999999999999999}"),
              HasSubstr("which does not fit; allowed: a whole number, 1 or more, at most "));
}

TEST(ParseJobFile, ANumberWithACommaIsExplained) {
  EXPECT_THAT(ProblemsOfFit("{steps: 1,000}"),
              HasSubstr("stages[0].fit.000: unknown key; a ',' ends a value: write numbers "
                        "without it"));
}

TEST(ParseJobFile, AFileOfAnotherKindIsNamed) {
  EXPECT_THAT(Message(ParseJobFile("version https://git-lfs.github.com/spec/v1\noid sha256:1\n",
                                   "job.yaml", "/folder")
                          .status()),
              HasSubstr("job.yaml:1: expected a job file (YAML), found a git-lfs pointer"));
}

TEST(ParseJobFile, Utf16IsNamed) {
  EXPECT_THAT(Message(ParseJobFile("\xff\xfen" + std::string(1, '\0'), "j", "/folder").status()),
              HasSubstr("j:1: is text in UTF-16; save it as UTF-8"));
}

TEST(ParseJobFile, AFolderThatIsNotUtf8IsNamed) {
  const std::string text = "data: {train: {tokens: {path: x.bin}}}\n";
  EXPECT_THAT(Message(ParseJobFile(text, "job.yaml", "/caf\xe9").status()),
              HasSubstr("data.train.tokens.path[0]: the path is relative to the folder /caf\xef\xbf"
                        "\xbd, whose name is not UTF-8; give the folder another name"));
}

TEST(LoadJobFile, ResolvesPathsAgainstTheFilesFolder) {
  files::TempDir folder;
  std::ofstream(folder.Path("job.yaml")) << kGood;
  const auto job = LoadJobFile(folder.Path("job.yaml"));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->spec.checkpoint().directory(), folder.Path("ckpt"));
}

TEST(LoadJobFile, ReadsNoMoreThanAJobFileHas) {
  const files::TempDir folder;
  std::ofstream(folder.Path("huge.yaml")) << "name: a\n";
  std::filesystem::resize_file(folder.Path("huge.yaml"), uint64_t{1} << 40);
  for (const std::string& path :
       {std::string("/dev/zero"), std::string("/dev/urandom"), folder.Path("huge.yaml")}) {
    const auto job = LoadJobFile(path);
    EXPECT_EQ(job.status().code(), absl::StatusCode::kInvalidArgument) << job.status();
    EXPECT_THAT(Message(job.status()), HasSubstr("found more than 1048576 bytes"));
  }
}

TEST(LoadJobFile, ReadsAPipe) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const std::string text = "name: [\n";
  ASSERT_EQ(write(ends[1], text.data(), text.size()), text.size());
  close(ends[1]);
  EXPECT_THAT(Message(LoadJobFile(absl::StrCat("/proc/self/fd/", ends[0])).status()),
              HasSubstr(":2: this is not YAML"));
  close(ends[0]);
}

TEST(LoadJobFile, SaysWhenThereIsNone) {
  files::TempDir folder;
  EXPECT_EQ(LoadJobFile(folder.Path("none.yaml")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(LoadJobFile(folder.path()).status()), HasSubstr("is a directory"));
}

}  // namespace
}  // namespace muster::jobfile
