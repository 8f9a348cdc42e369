/* Converts JSON scalars: strings to UTF-8, numbers to doubles. They must be valid, as checked by
 * json.h. */

#ifndef KINETOSCOPE_JSON_TEXT_H
#define KINETOSCOPE_JSON_TEXT_H

#include "text/bytes.h"

/* Appends the content of a JSON string, with its escapes resolved. */
void json_put_inside(Bytes *bytes, const char *at, const char *end);
/* The content of a string; any other scalar is returned as written. The result points into the
 * text or, if the string has escapes, into `room`; `room->has_failed` says whether there was no
 * memory. */
Text json_plain_text(Text text, Bytes *room);

#endif
