#include "client/cli/terminal/output.h"

#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include <nlohmann/json.hpp>
#include <string>

#include "proto/muster/v1/job.pb.h"

namespace muster::cli {
namespace {

using Json = nlohmann::ordered_json;

// YAML 1.2 (core schema) as JSON, by the tags of the parser: "!" is quoted, "?" is plain.
Json FromYaml(const YAML::Node& node) {
  Json json;
  switch (node.Type()) {
    case YAML::NodeType::Map:
      json = Json::object();
      for (const auto& entry : node) json[entry.first.Scalar()] = FromYaml(entry.second);
      return json;
    case YAML::NodeType::Sequence:
      json = Json::array();
      for (const auto& element : node) json.push_back(FromYaml(element));
      return json;
    case YAML::NodeType::Scalar:
      if (node.Tag() == "!") return node.Scalar();
      // A plain scalar is a JSON value, or else a text.
      return Json::accept(node.Scalar()) ? Json::parse(node.Scalar()) : Json(node.Scalar());
    default:
      return nullptr;
  }
}

TEST(Yaml, GivesTheJsonBack) {
  const Json cases[] = {
      Json::object(),
      Json::array(),
      "text",
      "",
      0,
      -1,
      2.5,
      1e-300,
      0.1,
      true,
      false,
      nullptr,
      {{"a", {1, 2, {{"b", Json::array()}, {"c", Json::object()}}}}, {"d", nullptr}},
      // Texts that a reader of YAML would take for something else.
      {"1",          "1.5",
       "-3",         "+3",
       "0x1F",       "0o7",
       "1e3",        ".5",
       "1_000",      "1:30",
       "true",       "True",
       "yes",        "no",
       "On",         "off",
       "y",          "N",
       "null",       "Null",
       "~",          ".inf",
       "NaN",        ".nan",
       "2026-11-21", "2026-11-21T08:00:00Z",
       "=",          "<<"},
      // Texts that would break a plain scalar.
      {" a",
       "a ",
       "a: b",
       "a #b",
       "- a",
       "-",
       "---",
       "...",
       "?",
       "{a",
       "[a",
       "*a",
       "&a",
       "!a",
       "|",
       ">",
       "'",
       "\"",
       "%",
       "@",
       "`",
       "a\nb",
       "\n",
       "a\tb",
       "\x01",
       "\\",
       "\u00e9\u4e2d\U0001F600",
       "\u2028",
       std::string("a\0b", 3)},
      {{"1", 1}, {"true", 2}, {"a b", 3}, {"", 4}},
      Json::array({Json::array({Json::array()}), Json::array({1})}),
  };
  for (const Json& json : cases) {
    const std::string yaml = YamlOfJson(json.dump());
    ASSERT_EQ(yaml.back(), '\n');
    EXPECT_EQ(FromYaml(YAML::Load(yaml)).dump(), json.dump()) << yaml;
  }
}

TEST(Yaml, QuotesWhatIsNoPlainWordAndNothingElse) {
  EXPECT_EQ(
      YamlOfJson(R"({"a": "word", "b": "/path/to-x.y", "c": "12", "d": "yes", "e": 12, "f": true,
                           "g": "two words", "h": ["1.5", 1.5, 1e-8]})"),
      "a: word\nb: /path/to-x.y\nc: \"12\"\nd: \"yes\"\ne: 12\nf: true\ng: \"two words\"\n"
      "h:\n  - \"1.5\"\n  - 1.5\n  - 1.0e-08\n");
}

v1::Job FullJob() {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(R"(
    id: 'a-1' state: FAILED state_reason: 'rank 0: no' version: 18446744073709551615 step: 7
    spec { name: '1e3' world_size: 2 optimizer { adamw { lr: 0.1 betas: [0.9, 0.95] } }
           model { plugin { path: '/p.so' options { key: 'true' value: '007' } } } }
    loss: 0.1234567890123456 samples_per_second: 1e-7
    create_time { seconds: 1700000000 nanos: 123456000 }
    ranks { rank: 0 node: '12' pid: 77 device: 'cpu' progress: 'step 1: all_reduce' }
    checkpoints { step: 5 path: '/c/step-5' }
    failure { reason: 'yes' log_tail: 'first: line\n\tsecond # line\n' consequences: ['null', '- x'] }
  )",
                                                            &job));
  return job;
}

TEST(Document, OfYamlIsTheDocumentOfJson) {
  const v1::Job job = FullJob();
  const std::string json = Document(job, Output::kJson);
  const Json parsed = FromYaml(YAML::Load(Document(job, Output::kYaml)));
  EXPECT_EQ(parsed, Json::parse(json));
  v1::Job back;
  ASSERT_TRUE(google::protobuf::util::JsonStringToMessage(parsed.dump(), &back).ok());
  EXPECT_EQ(back.SerializeAsString(), job.SerializeAsString());
}

TEST(StreamItem, IsALineOfJsonOrADocumentOfYaml) {
  v1::Checkpoint checkpoint;
  checkpoint.set_step(5);
  checkpoint.set_path("/c");
  EXPECT_EQ(StreamItem(checkpoint, Output::kJson),
            "{\"step\":\"5\",\"generation\":\"0\",\"path\":\"/"
            "c\",\"bad_reason\":\"\",\"origin\":\"ORIGIN_UNSPECIFIED\","
            "\"origin_reason\":\"\",\"bytes\":\"0\",\"stall_seconds\":0,"
            "\"write_seconds\":0,\"best\":false}\n");
  const std::string twice =
      StreamItem(checkpoint, Output::kYaml) + StreamItem(checkpoint, Output::kYaml);
  EXPECT_EQ(YAML::LoadAll(twice).size(), 2);
  EXPECT_EQ(twice.rfind("---\nstep: \"5\"\n", 0), 0);
}

}  // namespace
}  // namespace muster::cli
