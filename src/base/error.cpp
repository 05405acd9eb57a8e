// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/error.hpp"

#include <system_error>

#include "headrace/base/names.hpp"

namespace headrace {

std::string_view name(Code code) {
  return name<Code>(code);
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
