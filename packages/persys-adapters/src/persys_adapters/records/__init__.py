"""The stored JSON records and the key layout, in one place.

``layout`` says where a record stands, ``codec`` turns it into bytes and back; the other modules
hold the shapes of single records. Formats follow the reference scheduler wherever it has the
field; what it lacks stands under the one name ``persys`` of each record.
"""
