// `muster certs`: a certificate authority in a folder. Needs no coordinator.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "client/cli/command.h"
#include "client/cli/commands.h"
#include "client/cli/terminal/output.h"
#include "common/certs/authority.h"
#include "common/certs/certificate.h"
#include "common/certs/pem_file.h"
#include "common/certs/subject.h"
#include "common/printable/printable.h"
#include "common/status/status.h"

namespace muster::cli {
namespace {

constexpr char kDefaultFolder[] = "muster-ca";

struct CertsOptions : CommonOptions {
  std::string folder = kDefaultFolder;
  int days = 0;
  bool overwrite = false;
  // Options of `issue`.
  std::string role;
  std::string name;
  std::vector<std::string> hosts;
  std::string out = ".";
  // Options of `revoke`.
  std::string who;
  // Options of `show`.
  std::vector<std::string> files;

  certs::IfExists if_exists() const {
    return overwrite ? certs::IfExists::kReplace : certs::IfExists::kRefuse;
  }
};

ExitCode Refuse(Console* console, const absl::Status& status) {
  return FailWith(console, Message(status), absl::IsInvalidArgument(status) ? kUsage : kOtherError);
}

ExitCode Init(Console* console, const CertsOptions& options) {
  const auto made = certs::InitAuthority({.folder = options.folder,
                                          .days = options.days,
                                          .if_exists = options.if_exists(),
                                          .now = absl::Now()});
  if (!made.ok()) return Refuse(console, made.status());
  console->err << "made a CA in " << options.folder << ", valid until "
               << certs::TimeText(made->not_after) << "; keep " << options.folder
               << "/ca.key secret: whoever has it can make any certificate\n";
  return kDone;
}

ExitCode Issue(Console* console, const CertsOptions& options) {
  const auto role = certs::ParseRole(options.role);
  if (!role.ok()) return Refuse(console, role.status());
  const auto issued = certs::Issue({.authority = options.folder,
                                    .subject = {*role, options.name},
                                    .hosts = options.hosts,
                                    .days = options.days,
                                    .out = options.out,
                                    .if_exists = options.if_exists(),
                                    .now = absl::Now()});
  if (!issued.ok()) return Refuse(console, issued.status());
  if (IsDocument(options.output)) {
    const nlohmann::ordered_json json = {{"name", issued->certificate.common_name},
                                         {"serial", issued->certificate.serial},
                                         {"until", certs::TimeText(issued->certificate.not_after)},
                                         {"certificate", issued->files.certificate},
                                         {"key", issued->files.key},
                                         {"ca", issued->files.ca}};
    console->out << Document(json.dump(2) + "\n", options.output);
    return kDone;
  }
  console->out << issued->certificate.common_name << ", serial number "
               << issued->certificate.serial << ", valid until "
               << certs::TimeText(issued->certificate.not_after) << "\n";
  console->err << "wrote " << issued->files.certificate << ", " << issued->files.key
               << " (secret) and " << issued->files.ca << "\n";
  return kDone;
}

ExitCode Revoke(Console* console, const CertsOptions& options) {
  const auto revocation = certs::Revoke(options.folder, options.who, absl::Now());
  if (!revocation.ok()) return Refuse(console, revocation.status());
  for (const certs::Certificate& one : revocation->revoked) {
    console->out << "revoked " << one.common_name << ", serial number " << one.serial << "\n";
  }
  for (const certs::Certificate& one : revocation->already) {
    console->out << "already revoked: " << one.common_name << ", serial number " << one.serial
                 << "\n";
  }
  if (!revocation->unknown_serial.empty()) {
    console->out << "revoked the serial number " << revocation->unknown_serial
                 << ", which this CA did not issue\n";
  }
  console->err << "musterd refuses them once the file that its --tls-revoked names is the new "
               << options.folder << "/revoked; without --tls-revoked it refuses nobody\n";
  return kDone;
}

struct Shown {
  certs::Certificate certificate;
  std::string state;
};

std::string StateOf(const certs::KnownCertificate& one) {
  if (one.revoked) return "REVOKED";
  const absl::Time now = absl::Now();
  if (one.certificate.not_after <= now) return "EXPIRED";
  return one.certificate.not_before > now ? "NOT YET VALID" : "VALID";
}

// The certificates that the CA has issued, or those in the files.
absl::StatusOr<std::vector<Shown>> ToShow(const CertsOptions& options) {
  std::vector<Shown> shown;
  if (options.files.empty()) {
    ASSIGN_OR_RETURN(const auto known, certs::ListIssued(options.folder));
    for (const auto& one : known) shown.push_back({one.certificate, StateOf(one)});
  }
  for (const std::string& file : options.files) {
    ASSIGN_OR_RETURN(const std::string pem, certs::ReadPemFile(file));
    const auto certificate = certs::ParseCertificate(pem);
    if (!certificate.ok()) return Annotate(certificate.status(), file);
    shown.push_back({*certificate, StateOf({*certificate})});
  }
  return shown;
}

ExitCode Show(Console* console, const CertsOptions& options) {
  const auto shown = ToShow(options);
  if (!shown.ok()) return Refuse(console, shown.status());
  if (IsDocument(options.output)) {
    nlohmann::ordered_json json = {{"certificates", nlohmann::ordered_json::array()}};
    for (const auto& [certificate, state] : *shown) {
      json["certificates"].push_back({{"name", certificate.common_name},
                                      {"serial", certificate.serial},
                                      {"state", state},
                                      {"from", certs::TimeText(certificate.not_before)},
                                      {"until", certs::TimeText(certificate.not_after)},
                                      {"hosts", certificate.hosts}});
    }
    console->out << Document(json.dump(2) + "\n", options.output);
    return kDone;
  }
  if (shown->empty()) {
    console->err << "the CA in " << options.folder << " has issued no certificate\n";
    return kDone;
  }
  Table table({"NAME", "STATE", "UNTIL", "SERIAL NUMBER", "HOSTS"});
  for (const auto& [certificate, state] : *shown) {
    table.Add(
        {PrintableLine(certificate.common_name), state, certs::TimeText(certificate.not_after),
         certificate.serial,
         certificate.hosts.empty() ? "-" : PrintableLine(absl::StrJoin(certificate.hosts, ", "))});
  }
  console->out << table.Text();
  return kDone;
}

std::shared_ptr<CertsOptions> AddCommand(CLI::App* command, int days) {
  auto options = std::make_shared<CertsOptions>();
  options->days = days;
  command
      ->add_option_function<std::string>(
          "--ca",
          [options](std::string folder) {
            while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
            options->folder = folder;
          },
          absl::StrCat("The folder of the CA (", kDefaultFolder, ")"))
      ->check([](const std::string& folder) {
        return folder.empty() ? "--ca is empty; expected a folder" : "";
      })
      ->type_name("DIR");
  if (days == 0) return options;
  command->add_option("--days", options->days, absl::StrCat("How long it is valid (", days, ")"))
      ->type_name("N");
  command->add_flag("--overwrite", options->overwrite, "Replace files that exist");
  return options;
}

void AddInit(CLI::App* group, Console* console, ExitCode* code) {
  CLI::App* command = group->add_subcommand("init", "Make a CA in a new folder");
  auto options = AddCommand(command, certs::kMaxDays);
  command->callback([=] { *code = Init(console, *options); });
}

void AddIssue(CLI::App* group, Console* console, ExitCode* code) {
  CLI::App* command = group->add_subcommand(
      "issue", "Write NAME.crt, NAME.key and ca.crt: who has the key may do what ROLE may");
  auto options = AddCommand(command, 365);
  command
      ->add_option("ROLE", options->role,
                   "coordinator (musterd), operator, reader (changes nothing), agent or worker")
      ->required();
  command->add_option("NAME", options->name, "Whose it is; for an agent, the name of its node")
      ->required();
  command
      ->add_option(
          "--host", options->hosts,
          "A name or an address by which clients reach a coordinator. May be given several "
          "times")
      ->allow_extra_args(false)
      ->type_name("HOST");
  command->add_option("--out", options->out, "The folder of the files (the current one)")
      ->check([](const std::string& out) { return out.empty() ? kOutIsEmpty : ""; })
      ->type_name("DIR");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = Issue(console, *options); });
}

void AddRevoke(CLI::App* group, Console* console, ExitCode* code) {
  CLI::App* command =
      group->add_subcommand("revoke", "Add certificates to the list of those that count no more");
  auto options = AddCommand(command, 0);
  command
      ->add_option("WHO", options->who,
                   "NAME or ROLE/NAME: all certificates of that name so far; or a serial number")
      ->required();
  command->callback([=] { *code = Revoke(console, *options); });
}

void AddShow(CLI::App* group, Console* console, ExitCode* code) {
  CLI::App* command = group->add_subcommand(
      "show", "List the certificates that the CA has issued, or those in files");
  auto options = AddCommand(command, 0);
  command->add_option("FILE", options->files, "Certificates in PEM form");
  AddOutputOption(command, options.get());
  command->callback([=] { *code = Show(console, *options); });
}

}  // namespace

void AddCerts(CLI::App* app, Console* console, ExitCode* code) {
  CLI::App* group = app->add_subcommand(
      "certs", "Make and revoke certificates for musterd, agents and users; needs no coordinator");
  group->require_subcommand(1);
  AddInit(group, console, code);
  AddIssue(group, console, code);
  AddRevoke(group, console, code);
  AddShow(group, console, code);
}

}  // namespace muster::cli
