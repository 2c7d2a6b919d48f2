// Number of the rules by which the layouts in this folder are written. It counts up when the meaning of a byte of any of
// them changes, together with LAYOUT_ABI of fp4_block.py. The build writes it into the fat binary, and a binary with
// another number is refused: it would read weights wrongly.
#define SM70_LAYOUT_ABI 1
