#include "common/certs/authority.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/certs/deny_list.h"
#include "common/certs/pem_file.h"
#include "common/certs/signing.h"
#include "common/files/disk.h"
#include "common/files/files.h"
#include "common/status/status.h"

namespace muster::certs {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);
constexpr mode_t kOpenToRead = 0644;
constexpr mode_t kSecret = 0600;
constexpr size_t kLeastUnknownDigits = 16;

std::string CertificateFile(const std::string& folder) { return folder + "/ca.crt"; }
std::string KeyFile(const std::string& folder) { return folder + "/ca.key"; }
std::string DenyFile(const std::string& folder) { return folder + "/revoked"; }
std::string IssuedFolder(const std::string& folder) { return folder + "/issued"; }

// A lock that is held while a program changes the folder. The kernel releases it when the program
// ends.
class FolderLock {
 public:
  static absl::StatusOr<std::unique_ptr<FolderLock>> Take(const std::string& folder) {
    const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return files::ErrnoStatus(errno, "open", folder);
    std::unique_ptr<FolderLock> lock(new FolderLock(fd));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return lock;
    return absl::AbortedError(
        absl::StrCat("another `muster certs` changes ", folder, " now; try again when it is done"));
  }
  ~FolderLock() { close(fd_); }

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  const int fd_;
};

absl::Status CheckDays(int days) {
  if (days >= 1 && days <= kMaxDays) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(days, " days: a certificate is valid for 1 to ", kMaxDays, " days"));
}

absl::Status MakeFolder(const std::string& path, mode_t mode) {
  RETURN_IF_ERROR(files::CreateDirectories(files::ParentDirectory(path)));
  if (mkdir(path.c_str(), mode) == 0 || errno == EEXIST) return absl::OkStatus();
  return files::ErrnoStatus(errno, "make directory", path);
}

// Checks that the folder belongs to the CA alone.
absl::Status CheckFolder(const std::string& folder, IfExists if_exists) {
  std::error_code error;
  const bool has_ca = std::filesystem::exists(CertificateFile(folder), error) ||
                      std::filesystem::exists(KeyFile(folder), error);
  const bool empty = std::filesystem::is_empty(folder, error);
  if (error) return files::ErrnoStatus(error.value(), "read", folder);
  if (has_ca && if_exists == IfExists::kRefuse) {
    return absl::AlreadyExistsError(absl::StrCat(
        folder,
        " holds a CA already; --overwrite makes a new one in its place, and then no certificate "
        "of the old one counts any more"));
  }
  if (!has_ca && !empty) {
    return absl::AlreadyExistsError(
        absl::StrCat(folder, " holds other files; a CA needs a folder of its own: name a new one"));
  }
  return absl::OkStatus();
}

absl::Status CheckSecret(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return files::ErrnoStatus(errno, "read", path);
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "other accounts may use the CA's key ", path, "; if nobody has copied it: `chmod 600 ", path,
      "`; otherwise make a new CA (`muster certs init --overwrite`)"));
}

absl::Status CheckIsAuthority(const std::string& folder) {
  std::error_code error;
  if (std::filesystem::exists(CertificateFile(folder), error)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("there is no CA in ", folder,
                                          "; name another folder with --ca, or make one: `muster "
                                          "certs init --ca ",
                                          folder, "`"));
}

absl::StatusOr<Identity> LoadAuthority(const std::string& folder, absl::Time now) {
  RETURN_IF_ERROR(CheckIsAuthority(folder));
  RETURN_IF_ERROR(CheckSecret(KeyFile(folder)));
  ASSIGN_OR_RETURN(const std::string certificate_pem, ReadPemFile(CertificateFile(folder)));
  ASSIGN_OR_RETURN(const std::string key_pem, ReadPemFile(KeyFile(folder)));
  auto certificates = ReadCertificates(certificate_pem);
  if (!certificates.ok()) return Annotate(certificates.status(), CertificateFile(folder));
  auto key = ReadKey(key_pem);
  if (!key.ok()) return Annotate(key.status(), KeyFile(folder));
  Identity authority{std::move(certificates->front()), *std::move(key)};
  if (X509_check_private_key(authority.certificate.get(), authority.key.get()) != 1) {
    OpenSslError();
    return absl::FailedPreconditionError(absl::StrCat(CertificateFile(folder), " and ",
                                                      KeyFile(folder),
                                                      " do not belong together; "
                                                      "take both from one backup"));
  }
  const Certificate described = Describe(*authority.certificate);
  RETURN_IF_ERROR(Annotate(CheckTimes(described, now), CertificateFile(folder)));
  return authority;
}

absl::Status CheckHosts(const NewCertificate& options) {
  const bool coordinator = options.subject.role == Role::kCoordinator;
  if (coordinator && options.hosts.empty()) {
    return absl::InvalidArgumentError(
        "a coordinator's certificate names the hosts by which clients reach it: add --host HOST "
        "for each name and address");
  }
  if (!coordinator && !options.hosts.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--host is for coordinators; nobody connects to ", ToString(options.subject)));
  }
  for (const std::string& host : options.hosts) RETURN_IF_ERROR(CheckHost(host));
  return absl::OkStatus();
}

// Refuses the name "ca": its files would have the names of the CA's own files.
absl::Status CheckName(const std::string& name) {
  if (name != "ca") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the name 'ca' is taken: ca.crt is the certificate of the CA; choose another name");
}

absl::Status CheckEnds(const Certificate& authority, absl::Time until, absl::Time now) {
  if (until <= authority.not_after) return absl::OkStatus();
  const int64_t left = (authority.not_after - now) / kDay;
  return absl::InvalidArgumentError(
      absl::StrCat("the certificate would be valid longer than that of its CA, which expires at ",
                   TimeText(authority.not_after),
                   left < 1 ? "; make a new CA (`muster certs init`)"
                            : absl::StrCat("; --days may be up to ", left)));
}

// Returns whether an equal file exists. A certificate of the CA that is already there is not
// written again.
absl::StatusOr<bool> HasEqual(const std::string& path, const std::string& contents) {
  const absl::Status free = CheckFree(path, IfExists::kReplace);
  if (!free.ok()) return free;
  const auto text = ReadPemFile(path);
  if (absl::IsNotFound(text.status())) return false;
  RETURN_IF_ERROR(text.status());
  return *text == contents;
}

}  // namespace

absl::StatusOr<Certificate> InitAuthority(const NewAuthority& options) {
  RETURN_IF_ERROR(CheckDays(options.days));
  const std::string& folder = options.folder;
  RETURN_IF_ERROR(MakeFolder(folder, S_IRWXU));
  ASSIGN_OR_RETURN(const auto lock, FolderLock::Take(folder));
  RETURN_IF_ERROR(CheckFolder(folder, options.if_exists));
  if (chmod(folder.c_str(), S_IRWXU) != 0) return files::ErrnoStatus(errno, "chmod", folder);
  ToSign what{
      .common_name = absl::StrCat(
          "muster CA of ", absl::FormatTime("%Y-%m-%d %H:%M:%S", options.now, absl::UTCTimeZone())),
      .use = Use::kAuthority,
      .hosts = {},
      .from = options.now - kBackdated,
      .until = options.now + options.days * kDay};
  ASSIGN_OR_RETURN(const Identity made, Sign(what, nullptr));
  RETURN_IF_ERROR(WriteNew(KeyFile(folder), Pem(*made.key), kSecret, options.if_exists));
  RETURN_IF_ERROR(
      WriteNew(CertificateFile(folder), Pem(*made.certificate), kOpenToRead, options.if_exists));
  std::error_code error;
  std::filesystem::remove_all(IssuedFolder(folder), error);
  if (error) return files::ErrnoStatus(error.value(), "remove", IssuedFolder(folder));
  RETURN_IF_ERROR(MakeFolder(IssuedFolder(folder), S_IRWXU));
  RETURN_IF_ERROR(AddToDenyList(DenyFile(folder), {}, ""));
  return Describe(*made.certificate);
}

absl::StatusOr<IssuedFiles> Issue(const NewCertificate& options) {
  RETURN_IF_ERROR(ParseSubject(ToString(options.subject)).status());
  RETURN_IF_ERROR(CheckName(options.subject.name));
  RETURN_IF_ERROR(CheckDays(options.days));
  RETURN_IF_ERROR(CheckHosts(options));
  RETURN_IF_ERROR(CheckIsAuthority(options.authority));
  ASSIGN_OR_RETURN(const auto lock, FolderLock::Take(options.authority));
  ASSIGN_OR_RETURN(const Identity authority, LoadAuthority(options.authority, options.now));
  const absl::Time until = options.now + options.days * kDay;
  RETURN_IF_ERROR(CheckEnds(Describe(*authority.certificate), until, options.now));

  const std::string base = files::JoinPath(options.out, options.subject.name);
  const TlsFiles files{.certificate = base + ".crt",
                       .key = base + ".key",
                       .ca = files::JoinPath(options.out, "ca.crt")};
  const std::string authority_pem = Pem(*authority.certificate);
  ASSIGN_OR_RETURN(const bool has_authority, HasEqual(files.ca, authority_pem));
  for (const std::string& path : {files.certificate, files.key}) {
    RETURN_IF_ERROR(CheckFree(path, options.if_exists));
  }
  if (!has_authority) RETURN_IF_ERROR(CheckFree(files.ca, options.if_exists));

  ASSIGN_OR_RETURN(
      const Identity made,
      Sign({.common_name = ToString(options.subject),
            .use = options.subject.role == Role::kCoordinator ? Use::kServer : Use::kClient,
            .hosts = options.hosts,
            .from = options.now - kBackdated,
            .until = until},
           &authority));
  const Certificate certificate = Describe(*made.certificate);
  const std::string pem = Pem(*made.certificate);
  // The record is written first, so that every existing certificate can be revoked by its name.
  RETURN_IF_ERROR(
      WriteNew(files::JoinPath(IssuedFolder(options.authority), certificate.serial + ".crt"), pem,
               kOpenToRead, IfExists::kRefuse));
  RETURN_IF_ERROR(files::CreateDirectories(options.out));
  if (!has_authority) {
    RETURN_IF_ERROR(WriteNew(files.ca, authority_pem, kOpenToRead, options.if_exists));
  }
  RETURN_IF_ERROR(WriteNew(files.key, Pem(*made.key), kSecret, options.if_exists));
  RETURN_IF_ERROR(WriteNew(files.certificate, pem, kOpenToRead, options.if_exists));
  return IssuedFiles{certificate, files};
}

absl::StatusOr<std::vector<KnownCertificate>> ListIssued(const std::string& folder) {
  RETURN_IF_ERROR(CheckIsAuthority(folder));
  const auto deny_text = files::ReadFile(DenyFile(folder));
  if (!deny_text.ok() && !absl::IsNotFound(deny_text.status())) return deny_text.status();
  const std::set<std::string> revoked = ParseDenyList(deny_text.value_or("")).serials;
  std::vector<KnownCertificate> known;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(IssuedFolder(folder), error)) {
    if (entry.path().extension() != ".crt") continue;
    ASSIGN_OR_RETURN(const std::string pem, ReadPemFile(entry.path().string()));
    auto certificate = ParseCertificate(pem);
    if (!certificate.ok()) return Annotate(certificate.status(), entry.path().string());
    const bool is_revoked = revoked.count(certificate->serial) > 0;
    known.push_back({*std::move(certificate), is_revoked});
  }
  if (error) return files::ErrnoStatus(error.value(), "read", IssuedFolder(folder));
  std::sort(known.begin(), known.end(), [](const KnownCertificate& a, const KnownCertificate& b) {
    const auto key = [](const Certificate& one) {
      return std::tie(one.common_name, one.not_before, one.serial);
    };
    return key(a.certificate) < key(b.certificate);
  });
  return known;
}

absl::StatusOr<Revocation> Revoke(const std::string& folder, const std::string& who,
                                  absl::Time now) {
  RETURN_IF_ERROR(CheckIsAuthority(folder));
  ASSIGN_OR_RETURN(const auto lock, FolderLock::Take(folder));
  ASSIGN_OR_RETURN(const std::vector<KnownCertificate> known, ListIssued(folder));
  const std::string serial = NormalSerial(who).value_or("");
  const bool has_role = who.find('/') != std::string::npos;
  Revocation revocation;
  std::set<std::string> names;
  std::set<std::string> serials;
  for (const KnownCertificate& one : known) {
    const std::string& common_name = one.certificate.common_name;
    const std::string name = common_name.substr(common_name.find('/') + 1);
    const bool named = (has_role ? common_name : name) == who;
    if (!named && (serial.empty() || one.certificate.serial != serial)) continue;
    names.insert(common_name);
    serials.insert(one.certificate.serial);
    (one.revoked ? revocation.already : revocation.revoked).push_back(one.certificate);
  }
  if (names.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", who,
        "' has certificates of several roles; name one of them: ", absl::StrJoin(names, ", ")));
  }
  if (serials.empty()) {
    if (serial.size() < kLeastUnknownDigits) {
      return absl::NotFoundError(
          absl::StrCat("the CA in ", folder, " has issued no certificate for '", who,
                       "'; `muster certs show --ca ", folder, "` lists those that it has issued"));
    }
    revocation.unknown_serial = serial;
    serials.insert(serial);
  }
  const std::string comment = absl::StrCat(names.empty() ? "not issued by this CA" : *names.begin(),
                                           ", revoked ", TimeText(now));
  RETURN_IF_ERROR(AddToDenyList(DenyFile(folder), serials, comment));
  return revocation;
}

}  // namespace muster::certs
