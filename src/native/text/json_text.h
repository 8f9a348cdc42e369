/* What JSON scalars say: strings as UTF-8, numbers as doubles. They must be valid, as json.h finds
 * them to be. */

#ifndef KINETOSCOPE_JSON_TEXT_H
#define KINETOSCOPE_JSON_TEXT_H

#include "text/bytes.h"

/* Adds what is between the quotes of a JSON string, its escapes resolved. */
void json_put_inside(Bytes *bytes, const char *at, const char *end);
/* The same of a whole string, or a scalar that is none as it is written, or nothing. It stands
 * where it stood or, if it has escapes, in `room`; `room->has_failed` tells if there was no
 * memory. */
Text json_plain_text(Text text, Bytes *room);

#endif
