#include "common/certs/certificate.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <time.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

constexpr size_t kMaxSerialDigits = 40;

absl::Time ToTime(const ASN1_TIME* time) {
  tm utc = {};
  if (ASN1_TIME_to_tm(time, &utc) != 1) return absl::InfinitePast();
  return absl::FromTimeT(timegm(&utc));
}

std::string CommonName(const X509& certificate) {
  X509_NAME* subject = X509_get_subject_name(&certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0 || X509_NAME_get_index_by_NID(subject, NID_commonName, at) >= 0) return "";
  unsigned char* text = nullptr;
  const int size =
      ASN1_STRING_to_UTF8(&text, X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  if (size < 0) return "";
  std::string name(reinterpret_cast<char*>(text), static_cast<size_t>(size));
  OPENSSL_free(text);
  return name;
}

std::string Serial(const X509& certificate) {
  const Owned<BIGNUM> number(ASN1_INTEGER_to_BN(X509_get0_serialNumber(&certificate), nullptr));
  if (number == nullptr) return "";
  char* text = BN_bn2hex(number.get());
  if (text == nullptr) return "";
  const std::string hex(text);
  OPENSSL_free(text);
  return NormalSerial(hex).value_or("");
}

std::vector<std::string> Hosts(const X509& certificate) {
  const Owned<GENERAL_NAMES> names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> hosts;
  if (names == nullptr) return hosts;
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type == GEN_DNS) {
      hosts.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                         ASN1_STRING_length(name->d.dNSName));
    } else if (name->type == GEN_IPADD) {
      const bool v4 = ASN1_STRING_length(name->d.iPAddress) == 4;
      if (!v4 && ASN1_STRING_length(name->d.iPAddress) != 16) continue;
      char text[INET6_ADDRSTRLEN];
      inet_ntop(v4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress), text,
                sizeof(text));
      hosts.emplace_back(text);
    }
  }
  return hosts;
}

// A callback without which OpenSSL would ask on the terminal. Only notes that a password was
// needed.
int NoPassword(char* /*buffer*/, int /*size*/, int /*writes*/, void* needed) {
  *static_cast<bool*>(needed) = true;
  return -1;
}

}  // namespace

Certificate Describe(const X509& certificate) {
  return {.common_name = CommonName(certificate),
          .serial = Serial(certificate),
          .not_before = ToTime(X509_get0_notBefore(&certificate)),
          .not_after = ToTime(X509_get0_notAfter(&certificate)),
          .hosts = Hosts(certificate)};
}

absl::StatusOr<std::vector<Owned<X509>>> ReadCertificates(const std::string& pem) {
  const Owned<BIO> bio = ReadBio(pem);
  std::vector<Owned<X509>> certificates;
  while (true) {
    ERR_clear_error();
    Owned<X509> one(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
    if (one != nullptr) {
      certificates.push_back(std::move(one));
      continue;
    }
    const bool at_end = ERR_GET_REASON(ERR_peek_last_error()) == PEM_R_NO_START_LINE;
    const std::string error = OpenSslError();
    if (!at_end) return absl::InvalidArgumentError(absl::StrCat("not a certificate: ", error));
    if (certificates.empty()) {
      return absl::InvalidArgumentError(
          "no certificate in it; expected PEM with -----BEGIN CERTIFICATE-----");
    }
    return certificates;
  }
}

absl::StatusOr<Certificate> ParseCertificate(const std::string& pem) {
  ASSIGN_OR_RETURN(const std::vector<Owned<X509>> certificates, ReadCertificates(pem));
  return Describe(*certificates.front());
}

absl::StatusOr<Owned<EVP_PKEY>> ReadKey(const std::string& pem) {
  const Owned<BIO> bio = ReadBio(pem);
  bool needs_password = false;
  ERR_clear_error();
  Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, NoPassword, &needs_password));
  const std::string error = key == nullptr ? OpenSslError() : "";
  if (needs_password) {
    return absl::InvalidArgumentError(
        "the key is encrypted, and programs cannot ask for its password; write it without one "
        "(`openssl pkey -in FILE -out NEW`)");
  }
  if (key == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no private key in it; expected PEM with -----BEGIN PRIVATE KEY----- (", error, ")"));
  }
  return key;
}

absl::StatusOr<std::string> NormalSerial(const std::string& text) {
  std::string digits;
  const size_t from = text.rfind("0x", 0) == 0 || text.rfind("0X", 0) == 0 ? 2 : 0;
  for (const char c : text.substr(from)) {
    if (c == ':') continue;
    digits.push_back(absl::ascii_tolower(static_cast<unsigned char>(c)));
  }
  const bool hexadecimal = std::all_of(digits.begin(), digits.end(), [](char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
  });
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  if (!hexadecimal || digits.empty() || digits.size() > kMaxSerialDigits) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CHexEscape(text.substr(0, 2 * kMaxSerialDigits)),
                     "' is not a serial number: expected 1 to ", kMaxSerialDigits,
                     " hexadecimal digits, as `muster certs show` prints them"));
  }
  return digits;
}

absl::Status CheckTimes(const Certificate& certificate, absl::Time now) {
  if (certificate.not_before - kClockLeeway > now) {
    return absl::FailedPreconditionError(
        absl::StrCat("it is not valid before ", TimeText(certificate.not_before), "; now it is ",
                     TimeText(now), ": is this machine's clock right?"));
  }
  if (certificate.not_after <= now) {
    return absl::FailedPreconditionError(
        absl::StrCat("it expired at ", TimeText(certificate.not_after), "; now it is ",
                     TimeText(now), "; issue a new one (`muster certs issue`)"));
  }
  return absl::OkStatus();
}

std::string TimeText(absl::Time time) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", time, absl::UTCTimeZone());
}

}  // namespace muster::certs
