// Text of somebody else for a terminal or a log. Its control characters could move the cursor,
// change colours, show text in another order, or type on behalf of the user.
#ifndef MUSTER_COMMON_PRINTABLE_PRINTABLE_H_
#define MUSTER_COMMON_PRINTABLE_PRINTABLE_H_

#include <cstddef>
#include <string>

namespace muster {

// Appends `text` to *out. Writes codes in the place of these characters:
// - control characters but tabs and ends of lines ("\n", "\r\n"): "\x1b", "\u007f", "\u009b"
// - characters that change the direction of the text, or end lines or paragraphs elsewhere:
//   "\u202e"
// - bytes that are not part of a valid UTF-8 character: "\xff"
// Codes from U+007F on are written as in JSON and YAML, so they keep their meaning in such
// documents. With kMore it omits bytes at the end whose meaning depends on the next bytes. Returns
// the number of bytes of `text` that it used. Pure.
enum class Follows { kNothing, kMore };
size_t AppendPrintable(const std::string& text, Follows follows, std::string* out);

// `text` as one line: tabs and ends of lines are written as "\t" and "\n", too. For cells of tables
// and quoted texts. Pure.
std::string PrintableLine(const std::string& text);

// "uid 1000 (label 'me@host')": the requester that the connection proves, then the label that the
// client chose. Quotes in the label are escaped, so that no label looks like another requester.
// Returns only one of them if the other is empty, or if they are equal. Pure.
std::string WhoAsked(const std::string& requester, const std::string& label);

}  // namespace muster

#endif  // MUSTER_COMMON_PRINTABLE_PRINTABLE_H_
