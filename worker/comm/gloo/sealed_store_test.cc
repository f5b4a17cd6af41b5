#include "worker/comm/gloo/sealed_store.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "torch/csrc/distributed/c10d/TCPStore.hpp"

namespace muster::comm {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes ToBytes(const std::string& text) { return {text.begin(), text.end()}; }

class SealedStoreTest : public ::testing::Test {
 protected:
  // A connection of a stranger who knows only the address.
  c10::intrusive_ptr<c10d::TCPStore> Connect() {
    c10d::TCPStoreOptions options;
    options.port = server_->getPort();
    options.waitWorkers = false;
    return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  }
  c10::intrusive_ptr<SealedStore> ConnectWith(const std::string& secret) {
    return c10::make_intrusive<SealedStore>(secret, Connect());
  }

  static c10d::TCPStoreOptions Server() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    return options;
  }
  const c10::intrusive_ptr<c10d::TCPStore> server_ =
      c10::make_intrusive<c10d::TCPStore>("127.0.0.1", Server());
};

TEST_F(SealedStoreTest, WhoKnowsTheSecretReadsWhatOthersHaveSet) {
  const auto one = ConnectWith("secret"), other = ConnectWith("secret");
  EXPECT_FALSE(other->check({"key"}));
  one->set("key", ToBytes("value"));
  one->set("empty", Bytes());
  other->wait({"key", "empty"});
  EXPECT_TRUE(other->check({"key"}));
  EXPECT_EQ(other->get("key"), ToBytes("value"));
  EXPECT_EQ(other->get("empty"), Bytes());
  EXPECT_EQ(other->clone()->get("key"), ToBytes("value"));
  EXPECT_TRUE(one->deleteKey("key"));
  EXPECT_FALSE(other->check({"key"}));
}

TEST_F(SealedStoreTest, AStrangerSeesNeitherKeysNorValuesNorTheSecret) {
  const std::string secret = "a secret of a generation", key = "comm/0", value = "127.0.0.1:4242";
  ConnectWith(secret)->set(key, ToBytes(value));
  const auto stranger = Connect();
  const std::vector<std::string> keys = stranger->listKeys();
  ASSERT_FALSE(keys.empty());
  bool seen = false;
  for (const std::string& listed : keys) {
    EXPECT_EQ(listed.find(key), std::string::npos) << listed;
    EXPECT_EQ(listed.find(secret), std::string::npos) << listed;
    // A TCPStore puts "/" before the keys of its clients.
    const std::string name = listed.substr(listed.find_first_not_of('/'));
    if (!stranger->check({name})) continue;
    const Bytes stored = stranger->get(name);
    const std::string text(stored.begin(), stored.end());
    EXPECT_EQ(text.find(value), std::string::npos);
    EXPECT_EQ(text.find(secret), std::string::npos);
    seen = seen || stored.size() == value.size() + 28;
  }
  EXPECT_TRUE(seen) << "the sealed value was not looked at";
}

TEST_F(SealedStoreTest, WhatAStrangerHasSetIsRefused) {
  const auto rank = ConnectWith("secret"), stranger = ConnectWith("guess");
  rank->set("a", ToBytes("1"));
  rank->set("b", ToBytes("2"));
  stranger->set("a", ToBytes("3"));
  EXPECT_EQ(rank->get("a"), ToBytes("1"));

  int refusals = 0;
  // The stranger lists the keys, and moves the value of each key to another key.
  const auto plain = Connect();
  std::vector<std::string> names;
  for (const std::string& listed : plain->listKeys()) {
    const std::string name = listed.substr(listed.find_first_not_of('/'));
    if (name.size() == 64) names.push_back(name);
  }
  ASSERT_EQ(names.size(), 3);
  for (const std::string& name : names) {
    const Bytes before = plain->get(name);
    for (const std::string& other : names) {
      if (other == name) continue;
      const Bytes moved = plain->get(other);
      plain->set(name, moved);
      for (const std::string key : {"a", "b"}) {
        // The result is the value that the rank has set, or an error.
        try {
          EXPECT_EQ(rank->get(key), ToBytes(key == "a" ? "1" : "2"));
        } catch (const c10::DistStoreError& error) {
          EXPECT_NE(std::string(error.what()).find("does not know the secret"), std::string::npos);
        }
      }
      plain->set(name, before);
    }
    Bytes changed = before;
    changed.back() ^= 1;
    plain->set(name, changed);
    for (const std::string key : {"a", "b"}) {
      try {
        rank->get(key);
      } catch (const c10::DistStoreError&) {
        ++refusals;
      }
    }
    plain->set(name, before);
  }
  EXPECT_EQ(refusals, 2) << "one of the three values is the stranger's own";
}

}  // namespace
}  // namespace muster::comm
