// What `muster data` tells about files of documents (docs/reference/data.md). The input is the JSON
// of the Python package (client/python/muster/data/__main__.py).
#ifndef MUSTER_CLIENT_CLI_DATA_DOCUMENTS_TEXT_H_
#define MUSTER_CLIENT_CLI_DATA_DOCUMENTS_TEXT_H_

#include <ostream>

#include "nlohmann/json.hpp"

namespace muster::cli {

// How trained parts of a text are shown: in green, or between the signs ⟦ and ⟧.
enum class Trained { kGreen, kSigns };

// Prints what was made, how the records were read, and all that is left out.
void PrintReport(const nlohmann::json& report, std::ostream* out);

// Prints the texts of documents.
void PrintDocuments(const nlohmann::json& documents, Trained trained, std::ostream* out);

}  // namespace muster::cli

#endif  // MUSTER_CLIENT_CLI_DATA_DOCUMENTS_TEXT_H_
