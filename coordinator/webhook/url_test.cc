#include "coordinator/webhook/url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::webhook {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParseUrl, TakesApartWhatIsNeeded) {
  const std::string text = "https://hooks.example.com:8443/a/b%20c?token=x";
  EXPECT_EQ(*ParseUrl(text), (Url{.tls = true,
                                  .host = "hooks.example.com",
                                  .port = 8443,
                                  .target = "/a/b%20c?token=x",
                                  .text = text}));
  EXPECT_EQ(ParseUrl("http://host")->target, "/");
  EXPECT_EQ(ParseUrl("http://host?a=1")->target, "/?a=1");
  EXPECT_EQ(ParseUrl("HTTP://host/")->port, 80);
  EXPECT_EQ(ParseUrl("https://host/")->port, 443);
  EXPECT_EQ(ParseUrl("http://[fe80::1]:81/")->host, "fe80::1");
}

TEST(ParseUrl, ItsHostHeaderHasThePortOnlyIfItIsNotTheUsualOne) {
  EXPECT_EQ(HostHeader(*ParseUrl("http://host:80/")), "host");
  EXPECT_EQ(HostHeader(*ParseUrl("https://host:80/")), "host:80");
  EXPECT_EQ(HostHeader(*ParseUrl("http://[::1]:81/")), "[::1]:81");
}

TEST(ParseUrl, WhatIsShownHasNoSecret) {
  EXPECT_EQ(Shown(*ParseUrl("https://host:1/secret?token=secret")), "https://host:1");
}

TEST(ParseUrl, ReceiversThatLookTheSameAreToldApart) {
  EXPECT_THAT(
      ShownApart({*ParseUrl("https://a/x"), *ParseUrl("http://b/"), *ParseUrl("https://a/y"),
                  *ParseUrl("https://a:1/x")}),
      ElementsAre("https://a (--webhook 1)", "http://b", "https://a (--webhook 3)", "https://a:1"));
}

TEST(IsAddress, KnowsNumbersOfBothKinds) {
  for (const char* host : {"127.0.0.1", "::1", "fe80::1"}) EXPECT_TRUE(IsAddress(host)) << host;
  for (const char* host : {"localhost", "127.1", "1.2.3.4.5", "a::b::c", ""}) {
    EXPECT_FALSE(IsAddress(host)) << host;
  }
}

struct WrongUrl {
  std::string text, message;
};

class ParseUrlRefuses : public testing::TestWithParam<WrongUrl> {};

TEST_P(ParseUrlRefuses, AndSaysWhatWasExpectedAndFound) {
  const auto url = ParseUrl(GetParam().text);
  EXPECT_EQ(url.status().code(), absl::StatusCode::kInvalidArgument) << GetParam().text;
  EXPECT_THAT(std::string(url.status().message()), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Urls, ParseUrlRefuses,
    testing::Values(WrongUrl{"", "found one without a scheme"},
                    WrongUrl{"host:80/", "found one without a scheme"},
                    WrongUrl{"ftp://host/", "the scheme 'ftp'"},
                    WrongUrl{"http:///path", "the name or the address of a host, found ''"},
                    WrongUrl{"http://ho,st/", "found 'ho,st'"},
                    WrongUrl{"http://me:word@host/", "without a user and a password"},
                    WrongUrl{"http://host/#a", "without a fragment"},
                    WrongUrl{"http://host:/", "a port from 1 to 65535 after the host, found ':'"},
                    WrongUrl{"http://host:0/", "found ':0'"},
                    WrongUrl{"http://host:65536/", "found ':65536'"},
                    WrongUrl{"http://host:8x/", "found ':8x'"},
                    WrongUrl{"http://[::1", "an IPv6 address in brackets"},
                    WrongUrl{"http://[host]/", "an IPv6 address in brackets"},
                    WrongUrl{"http://host/a b", "visible ASCII"},
                    WrongUrl{"http://host/\r\nX: 1", "visible ASCII"},
                    WrongUrl{"http://host/\xc3\xa4", "visible ASCII"},
                    WrongUrl{"http://host/" + std::string(kLongestUrl, 'a'),
                             "at most 2000 bytes, found 2012 bytes"}));

}  // namespace
}  // namespace muster::webhook
