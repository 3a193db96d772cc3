// HTML escaping as the filters `escape`, `safe` and `xmlattr` know it.
#pragma once

#include "text/jinja/text.h"

namespace honeycrisp::text::jinja {

/// & < > " ' become &amp; &lt; &gt; &#34; &#39; (escapes of input characters stay input).
void append_escaped(TextBuilder& out, const Text& text);

}  // namespace honeycrisp::text::jinja
