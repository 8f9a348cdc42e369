/* Decimals as doubles: the decimal point does not depend on the locale. */

#ifndef KINETOSCOPE_DECIMAL_H
#define KINETOSCOPE_DECIMAL_H

/* The nearest double of the decimal at the start of a zero-ended text; 0 if there is none. */
double decimal_value(const char *text);

#endif
