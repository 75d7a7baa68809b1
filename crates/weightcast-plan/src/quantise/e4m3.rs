//! The e4m3 float: one sign bit, four of exponent, three of mantissa; up to 448, no infinity.

/// The largest value.
const MOST: f32 = 448.0;
/// Codes of NaN.
const NAN: u8 = 0x7f;
const NEGATIVE_NAN: u8 = 0xff;

/// Nearest code, ties to even; what is larger than 448 becomes 448, as in torch 2.13.
pub fn to_e4m3(value: f32) -> u8 {
    let sign = ((value.to_bits() >> 24) & 0x80) as u8;
    if value.is_nan() {
        return sign | NAN;
    }
    let magnitude = value.abs().min(MOST);
    let code = if magnitude < 0.015625 {
        // Below 2^-6 codes are multiples of 2^-9; adding 2^23 rounds to even.
        ((magnitude * 512.0 + 8_388_608.0).to_bits() & 0xff) as u8
    } else {
        let bits = magnitude.to_bits();
        let rounded = bits + 0x7_ffff + ((bits >> 20) & 1);
        ((rounded >> 20) - (120 << 3)) as u8
    };
    sign | code
}

/// The value of a code.
pub fn from_e4m3(code: u8) -> f32 {
    let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
    match code {
        NAN => f32::NAN,
        NEGATIVE_NAN => -f32::NAN,
        _ if code & 0x78 == 0 => sign * f32::from(code & 7) / 512.0,
        _ => {
            let exponent = u32::from((code >> 3) & 15) + 120;
            sign * f32::from_bits((exponent << 23) | (u32::from(code & 7) << 20))
        }
    }
}
