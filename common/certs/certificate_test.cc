#include "common/certs/certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace muster::certs {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Made with `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 36500 -subj
// /CN=operator/alice -set_serial 0x00AB01 -addext subjectAltName=DNS:node1,IP:10.0.0.7,IP:::1`. Its
// key does not exist any more.
constexpr char kAlice[] = R"(-----BEGIN CERTIFICATE-----
MIIBojCCAUigAwIBAgIDAKsBMAoGCCqGSM49BAMCMBkxFzAVBgNVBAMMDm9wZXJh
dG9yL2FsaWNlMCAXDTI2MTEyNjEwMDUxN1oYDzIxMjYxMTAyMTAwNTE3WjAZMRcw
FQYDVQQDDA5vcGVyYXRvci9hbGljZTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IA
BP6QxVxt0mSsdKoz9uihPsDE0duEFuZz9ZBHUO5NoEwdgrF9liI7zZvs7Ox2/21n
FQrqhgLxNMaicB5Lwxz67D6jfTB7MB0GA1UdDgQWBBQDLXd1mWnJ+EYJVlVhgn0t
94r1JjAfBgNVHSMEGDAWgBQDLXd1mWnJ+EYJVlVhgn0t94r1JjAPBgNVHRMBAf8E
BTADAQH/MCgGA1UdEQQhMB+CBW5vZGUxhwQKAAAHhxAAAAAAAAAAAAAAAAAAAAAB
MAoGCCqGSM49BAMCA0gAMEUCIQDVxNUuXJDMj3Q0UBkeCrbERp7FnDnvRZiU/36/
A4vkyQIgCtcomNZ0S4GQy3eouNJFoSQC7v5pZNERXhe9ZehYHDw=
-----END CERTIFICATE-----
)";

// A certificate with the common names operator/alice and reader/bob.
constexpr char kTwoNames[] = R"(-----BEGIN CERTIFICATE-----
MIIBszCCAVmgAwIBAgIUAuEYzFpIrkYVpclEYgleAuanJRIwCgYIKoZIzj0EAwIw
LjEXMBUGA1UEAwwOb3BlcmF0b3IvYWxpY2UxEzARBgNVBAMMCnJlYWRlci9ib2Iw
IBcNMjYxMTI2MTAwNTE3WhgPMjEyNjExMDIxMDA1MTdaMC4xFzAVBgNVBAMMDm9w
ZXJhdG9yL2FsaWNlMRMwEQYDVQQDDApyZWFkZXIvYm9iMFkwEwYHKoZIzj0CAQYI
KoZIzj0DAQcDQgAEaFeyisgth+TIy7qPLb3Ocjnt3d4ybYBn9/n66f/Isa3LZfBK
kokg/gptGwx0wYuM7J/Cx17ok7PH+Xnft2OiVqNTMFEwHQYDVR0OBBYEFMF+WmD/
TJRh/kugs52EGECZedKQMB8GA1UdIwQYMBaAFMF+WmD/TJRh/kugs52EGECZedKQ
MA8GA1UdEwEB/wQFMAMBAf8wCgYIKoZIzj0EAwIDSAAwRQIgXALVSvN6jmVEBHLB
qax6+OlnkwcvFOw7dqyxUc3cKpkCIQCp9b0r6lRUDHWAbiHZeCM7duJfiLjK2QKX
DpV5jEkU6w==
-----END CERTIFICATE-----
)";

constexpr char kEncryptedKey[] = R"(-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjtFLdQahtZdAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEGTgTjxQqsMVm/sEVpod9iAEgZBp
epsvhQhRqcItkKxrKUconDqWDX79MaEVJe482E32QU/VZ9raNP2/8dZJwsuwRrSX
WUnSm8LZulNDxen/nGKqvZlJAB4At67Qp2KkK4PgDXy8teKBjo5YP5s9nNsAREic
TC/yZWADPHjIwkqF9n906TKmxF/nNj6vSWwCktRCIiTaDtFokm3LNaODgxaM2Fs=
-----END ENCRYPTED PRIVATE KEY-----
)";

TEST(Certificate, SaysForWhomItIsAndItsSerialNumberAndHosts) {
  const auto certificate = ParseCertificate(kAlice);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_EQ(certificate->common_name, "operator/alice");
  EXPECT_EQ(certificate->serial, "ab01");
  EXPECT_THAT(certificate->hosts, ElementsAre("node1", "10.0.0.7", "::1"));
  EXPECT_EQ(certificate->not_after - certificate->not_before, absl::Hours(24) * 36500);
}

// A reader of only one of the names could take the certificate for another's.
TEST(Certificate, WithTwoCommonNamesIsForNobody) {
  const auto certificate = ParseCertificate(kTwoNames);
  ASSERT_TRUE(certificate.ok()) << certificate.status();
  EXPECT_EQ(certificate->common_name, "");
}

TEST(Certificate, OtherTextsAreRefused) {
  const std::string cut = std::string(kAlice).substr(0, 200) + "\n-----END CERTIFICATE-----\n";
  for (const std::string& text :
       {std::string(), std::string("hello"), cut, std::string(kAlice) + cut}) {
    const auto certificates = ReadCertificates(text);
    EXPECT_EQ(certificates.status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_EQ(ReadCertificates(std::string(kAlice) + kTwoNames)->size(), 2);
  EXPECT_THAT(std::string(ReadKey(kAlice).status().message()), HasSubstr("no private key"));
}

TEST(Certificate, AKeyWithAPasswordIsRefusedAndNobodyIsAsked) {
  EXPECT_THAT(std::string(ReadKey(kEncryptedKey).status().message()), HasSubstr("encrypted"));
}

TEST(Certificate, TimesHaveLeewayAtTheBeginningAndNoneAtTheEnd) {
  const absl::Time from = absl::FromUnixSeconds(1'000'000'000);
  const Certificate one{.not_before = from, .not_after = from + absl::Hours(1)};
  EXPECT_TRUE(CheckTimes(one, from).ok());
  EXPECT_TRUE(CheckTimes(one, from - kClockLeeway).ok());
  EXPECT_TRUE(CheckTimes(one, one.not_after - absl::Nanoseconds(1)).ok());
  const absl::Status early = CheckTimes(one, from - kClockLeeway - absl::Seconds(1));
  EXPECT_THAT(std::string(early.message()), HasSubstr("not valid before 2001-09-09 01:46:40 UTC"));
  const absl::Status late = CheckTimes(one, one.not_after);
  EXPECT_THAT(std::string(late.message()), HasSubstr("expired at 2001-09-09 02:46:40 UTC"));
}

TEST(Serial, IsReadAsOtherProgramsPrintIt) {
  for (const char* text : {"ab01", "AB01", "00:AB:01", "0xAB01", "0000ab01"}) {
    EXPECT_EQ(NormalSerial(text).value_or("refused"), "ab01") << text;
  }
  for (const std::string& text : {std::string(), std::string("0"), std::string("-ab"),
                                  std::string("xyz"), std::string("ab 01"), std::string(41, 'a')}) {
    EXPECT_EQ(NormalSerial(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace muster::certs
