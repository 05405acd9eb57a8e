// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/error.hpp"

#include <system_error>

#include "headrace/base/names.hpp"

namespace headrace {

namespace {

constexpr auto kCodes = make_names<Code>({
    {Code::invalid_argument, "invalid_argument"},
    {Code::not_found, "not_found"},
    {Code::out_of_range, "out_of_range"},
    {Code::io_failed, "io_failed"},
    {Code::corrupt_data, "corrupt_data"},
    {Code::version_mismatch, "version_mismatch"},
    {Code::type_mismatch, "type_mismatch"},
    {Code::closed, "closed"},
    {Code::hardware_absent, "hardware_absent"},
    {Code::out_of_memory, "out_of_memory"},
    {Code::capacity_exceeded, "capacity_exceeded"},
    {Code::permission_denied, "permission_denied"},
    {Code::unsupported, "unsupported"},
});

}  // namespace

std::string_view name(Code code) {
  return kCodes.text(code);
}

std::string Error::message() const {
  std::string text = "cannot " + tried + ": " + cause;
  if (os_errno != 0) {
    text += " (" + std::generic_category().message(os_errno) + ")";
  }
  if (!remedy.empty()) {
    text += "; " + remedy;
  }
  return text;
}

Error Error::within(std::string_view outer) const {
  Error seen = *this;
  seen.cause = "cannot " + tried + ": " + cause;
  seen.tried = outer;
  return seen;
}

}  // namespace headrace
