/* Decimals as doubles, with a point whatever the locale of the process. */

#ifndef KINETOSCOPE_DECIMAL_H
#define KINETOSCOPE_DECIMAL_H

/* The nearest double of the decimal that a zero-ended text begins with; 0 if it begins with
 * none. */
double decimal_value(const char *text);

#endif
