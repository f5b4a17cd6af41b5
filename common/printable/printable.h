// Text that somebody else has made, for a terminal or a log: it can contain control characters,
// which could move the cursor, change colours, show text in another order, or type on behalf of the
// user.
#ifndef MUSTER_COMMON_PRINTABLE_PRINTABLE_H_
#define MUSTER_COMMON_PRINTABLE_PRINTABLE_H_

#include <cstddef>
#include <string>

namespace muster {

// Appends text[at...] to *out, with the code in the place of
// - each control character but tabs and ends of lines ("\n", "\r\n"): "\x1b", "\u007f", "\u009b";
// - each character that changes the direction of the text, and each that ends lines or paragraphs
//   elsewhere: "\u202e";
// - each byte that is not part of a valid UTF-8 character: "\xff".
// Codes from U+007F on are written as in JSON and YAML, so a document of these says the same. With
// kMore it stops before bytes at the end whose meaning depends on what follows. Returns where it
// stopped. Pure.
enum class Follows { kNothing, kMore };
size_t AppendPrintable(const std::string& text, Follows follows, std::string* out);

// `text` as one line: also tabs and ends of lines are written, as "\t" and "\n". For cells of
// tables and quoted texts. Pure.
std::string PrintableLine(const std::string& text);

// "uid 1000 (label 'me@host')". What the connection proves (`requester`) comes first, and quotes in
// the label, which the client chose, are escaped: no label looks like another requester. One of
// them alone if the other is empty, or the same. Pure.
std::string WhoAsked(const std::string& requester, const std::string& label);

}  // namespace muster

#endif  // MUSTER_COMMON_PRINTABLE_PRINTABLE_H_
