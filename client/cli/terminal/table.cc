#include "client/cli/terminal/table.h"

#include <algorithm>
#include <utility>

#include "common/printable/printable.h"

namespace muster::cli {
namespace {

// Characters, not bytes: the continuation bytes of UTF-8 take no room.
size_t Width(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

Table::Table(std::vector<std::string> header) : has_header_(!header.empty()) {
  if (has_header_) rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = PrintableLine(cell);
  rows_.push_back(std::move(row));
}

bool Table::empty() const { return rows_.size() == (has_header_ ? 1 : 0); }

std::string Table::Text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    if (row.size() > widths.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Width(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i] + std::string(widths[i] - Width(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace muster::cli
