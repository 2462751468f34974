module @jit__unnamed_function attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<1000xf32>, %arg1: tensor<2048x1000xf32>, %arg2: tensor<1x1x64x64xf32>, %arg3: tensor<64xf32>, %arg4: tensor<64xf32>, %arg5: tensor<3x3x64x64xf32>, %arg6: tensor<64xf32>, %arg7: tensor<64xf32>, %arg8: tensor<1x1x64x256xf32>, %arg9: tensor<256xf32>, %arg10: tensor<256xf32>, %arg11: tensor<1x1x64x256xf32>, %arg12: tensor<256xf32>, %arg13: tensor<256xf32>, %arg14: tensor<1x1x256x64xf32>, %arg15: tensor<64xf32>, %arg16: tensor<64xf32>, %arg17: tensor<3x3x64x64xf32>, %arg18: tensor<64xf32>, %arg19: tensor<64xf32>, %arg20: tensor<1x1x64x256xf32>, %arg21: tensor<256xf32>, %arg22: tensor<256xf32>, %arg23: tensor<1x1x256x64xf32>, %arg24: tensor<64xf32>, %arg25: tensor<64xf32>, %arg26: tensor<3x3x64x64xf32>, %arg27: tensor<64xf32>, %arg28: tensor<64xf32>, %arg29: tensor<1x1x64x256xf32>, %arg30: tensor<256xf32>, %arg31: tensor<256xf32>, %arg32: tensor<1x1x256x128xf32>, %arg33: tensor<128xf32>, %arg34: tensor<128xf32>, %arg35: tensor<3x3x128x128xf32>, %arg36: tensor<128xf32>, %arg37: tensor<128xf32>, %arg38: tensor<1x1x128x512xf32>, %arg39: tensor<512xf32>, %arg40: tensor<512xf32>, %arg41: tensor<1x1x256x512xf32>, %arg42: tensor<512xf32>, %arg43: tensor<512xf32>, %arg44: tensor<1x1x512x128xf32>, %arg45: tensor<128xf32>, %arg46: tensor<128xf32>, %arg47: tensor<3x3x128x128xf32>, %arg48: tensor<128xf32>, %arg49: tensor<128xf32>, %arg50: tensor<1x1x128x512xf32>, %arg51: tensor<512xf32>, %arg52: tensor<512xf32>, %arg53: tensor<1x1x512x128xf32>, %arg54: tensor<128xf32>, %arg55: tensor<128xf32>, %arg56: tensor<3x3x128x128xf32>, %arg57: tensor<128xf32>, %arg58: tensor<128xf32>, %arg59: tensor<1x1x128x512xf32>, %arg60: tensor<512xf32>, %arg61: tensor<512xf32>, %arg62: tensor<1x1x512x128xf32>, %arg63: tensor<128xf32>, %arg64: tensor<128xf32>, %arg65: tensor<3x3x128x128xf32>, %arg66: tensor<128xf32>, %arg67: tensor<128xf32>, %arg68: tensor<1x1x128x512xf32>, %arg69: tensor<512xf32>, %arg70: tensor<512xf32>, %arg71: tensor<1x1x512x256xf32>, %arg72: tensor<256xf32>, %arg73: tensor<256xf32>, %arg74: tensor<3x3x256x256xf32>, %arg75: tensor<256xf32>, %arg76: tensor<256xf32>, %arg77: tensor<1x1x256x1024xf32>, %arg78: tensor<1024xf32>, %arg79: tensor<1024xf32>, %arg80: tensor<1x1x512x1024xf32>, %arg81: tensor<1024xf32>, %arg82: tensor<1024xf32>, %arg83: tensor<1x1x1024x256xf32>, %arg84: tensor<256xf32>, %arg85: tensor<256xf32>, %arg86: tensor<3x3x256x256xf32>, %arg87: tensor<256xf32>, %arg88: tensor<256xf32>, %arg89: tensor<1x1x256x1024xf32>, %arg90: tensor<1024xf32>, %arg91: tensor<1024xf32>, %arg92: tensor<1x1x1024x256xf32>, %arg93: tensor<256xf32>, %arg94: tensor<256xf32>, %arg95: tensor<3x3x256x256xf32>, %arg96: tensor<256xf32>, %arg97: tensor<256xf32>, %arg98: tensor<1x1x256x1024xf32>, %arg99: tensor<1024xf32>, %arg100: tensor<1024xf32>, %arg101: tensor<1x1x1024x256xf32>, %arg102: tensor<256xf32>, %arg103: tensor<256xf32>, %arg104: tensor<3x3x256x256xf32>, %arg105: tensor<256xf32>, %arg106: tensor<256xf32>, %arg107: tensor<1x1x256x1024xf32>, %arg108: tensor<1024xf32>, %arg109: tensor<1024xf32>, %arg110: tensor<1x1x1024x256xf32>, %arg111: tensor<256xf32>, %arg112: tensor<256xf32>, %arg113: tensor<3x3x256x256xf32>, %arg114: tensor<256xf32>, %arg115: tensor<256xf32>, %arg116: tensor<1x1x256x1024xf32>, %arg117: tensor<1024xf32>, %arg118: tensor<1024xf32>, %arg119: tensor<1x1x1024x256xf32>, %arg120: tensor<256xf32>, %arg121: tensor<256xf32>, %arg122: tensor<3x3x256x256xf32>, %arg123: tensor<256xf32>, %arg124: tensor<256xf32>, %arg125: tensor<1x1x256x1024xf32>, %arg126: tensor<1024xf32>, %arg127: tensor<1024xf32>, %arg128: tensor<1x1x1024x512xf32>, %arg129: tensor<512xf32>, %arg130: tensor<512xf32>, %arg131: tensor<3x3x512x512xf32>, %arg132: tensor<512xf32>, %arg133: tensor<512xf32>, %arg134: tensor<1x1x512x2048xf32>, %arg135: tensor<2048xf32>, %arg136: tensor<2048xf32>, %arg137: tensor<1x1x1024x2048xf32>, %arg138: tensor<2048xf32>, %arg139: tensor<2048xf32>, %arg140: tensor<1x1x2048x512xf32>, %arg141: tensor<512xf32>, %arg142: tensor<512xf32>, %arg143: tensor<3x3x512x512xf32>, %arg144: tensor<512xf32>, %arg145: tensor<512xf32>, %arg146: tensor<1x1x512x2048xf32>, %arg147: tensor<2048xf32>, %arg148: tensor<2048xf32>, %arg149: tensor<1x1x2048x512xf32>, %arg150: tensor<512xf32>, %arg151: tensor<512xf32>, %arg152: tensor<3x3x512x512xf32>, %arg153: tensor<512xf32>, %arg154: tensor<512xf32>, %arg155: tensor<1x1x512x2048xf32>, %arg156: tensor<2048xf32>, %arg157: tensor<2048xf32>, %arg158: tensor<7x7x3x64xf32>, %arg159: tensor<64xf32>, %arg160: tensor<64xf32>, %arg161: tensor<64xf32>, %arg162: tensor<64xf32>, %arg163: tensor<64xf32>, %arg164: tensor<64xf32>, %arg165: tensor<256xf32>, %arg166: tensor<256xf32>, %arg167: tensor<256xf32>, %arg168: tensor<256xf32>, %arg169: tensor<64xf32>, %arg170: tensor<64xf32>, %arg171: tensor<64xf32>, %arg172: tensor<64xf32>, %arg173: tensor<256xf32>, %arg174: tensor<256xf32>, %arg175: tensor<64xf32>, %arg176: tensor<64xf32>, %arg177: tensor<64xf32>, %arg178: tensor<64xf32>, %arg179: tensor<256xf32>, %arg180: tensor<256xf32>, %arg181: tensor<128xf32>, %arg182: tensor<128xf32>, %arg183: tensor<128xf32>, %arg184: tensor<128xf32>, %arg185: tensor<512xf32>, %arg186: tensor<512xf32>, %arg187: tensor<512xf32>, %arg188: tensor<512xf32>, %arg189: tensor<128xf32>, %arg190: tensor<128xf32>, %arg191: tensor<128xf32>, %arg192: tensor<128xf32>, %arg193: tensor<512xf32>, %arg194: tensor<512xf32>, %arg195: tensor<128xf32>, %arg196: tensor<128xf32>, %arg197: tensor<128xf32>, %arg198: tensor<128xf32>, %arg199: tensor<512xf32>, %arg200: tensor<512xf32>, %arg201: tensor<128xf32>, %arg202: tensor<128xf32>, %arg203: tensor<128xf32>, %arg204: tensor<128xf32>, %arg205: tensor<512xf32>, %arg206: tensor<512xf32>, %arg207: tensor<256xf32>, %arg208: tensor<256xf32>, %arg209: tensor<256xf32>, %arg210: tensor<256xf32>, %arg211: tensor<1024xf32>, %arg212: tensor<1024xf32>, %arg213: tensor<1024xf32>, %arg214: tensor<1024xf32>, %arg215: tensor<256xf32>, %arg216: tensor<256xf32>, %arg217: tensor<256xf32>, %arg218: tensor<256xf32>, %arg219: tensor<1024xf32>, %arg220: tensor<1024xf32>, %arg221: tensor<256xf32>, %arg222: tensor<256xf32>, %arg223: tensor<256xf32>, %arg224: tensor<256xf32>, %arg225: tensor<1024xf32>, %arg226: tensor<1024xf32>, %arg227: tensor<256xf32>, %arg228: tensor<256xf32>, %arg229: tensor<256xf32>, %arg230: tensor<256xf32>, %arg231: tensor<1024xf32>, %arg232: tensor<1024xf32>, %arg233: tensor<256xf32>, %arg234: tensor<256xf32>, %arg235: tensor<256xf32>, %arg236: tensor<256xf32>, %arg237: tensor<1024xf32>, %arg238: tensor<1024xf32>, %arg239: tensor<256xf32>, %arg240: tensor<256xf32>, %arg241: tensor<256xf32>, %arg242: tensor<256xf32>, %arg243: tensor<1024xf32>, %arg244: tensor<1024xf32>, %arg245: tensor<512xf32>, %arg246: tensor<512xf32>, %arg247: tensor<512xf32>, %arg248: tensor<512xf32>, %arg249: tensor<2048xf32>, %arg250: tensor<2048xf32>, %arg251: tensor<2048xf32>, %arg252: tensor<2048xf32>, %arg253: tensor<512xf32>, %arg254: tensor<512xf32>, %arg255: tensor<512xf32>, %arg256: tensor<512xf32>, %arg257: tensor<2048xf32>, %arg258: tensor<2048xf32>, %arg259: tensor<512xf32>, %arg260: tensor<512xf32>, %arg261: tensor<512xf32>, %arg262: tensor<512xf32>, %arg263: tensor<2048xf32>, %arg264: tensor<2048xf32>, %arg265: tensor<64xf32>, %arg266: tensor<64xf32>, %arg267: tensor<2x224x224x3xf32>) -> (tensor<2x1000xf32> {jax.result_info = "result[0]"}, tensor<64xf32> {jax.result_info = "result[1]['s0b0c1_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b0c1_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b0c2_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b0c2_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b0c3_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b0c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b0skip_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b0skip_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b1c1_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b1c1_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b1c2_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b1c2_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b1c3_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b1c3_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b2c1_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b2c1_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b2c2_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['s0b2c2_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b2c3_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s0b2c3_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b0c1_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b0c1_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b0c2_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b0c2_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b0c3_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b0c3_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b0skip_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b0skip_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b1c1_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b1c1_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b1c2_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b1c2_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b1c3_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b1c3_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b2c1_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b2c1_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b2c2_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b2c2_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b2c3_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b2c3_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b3c1_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b3c1_variance']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b3c2_mean']"}, tensor<128xf32> {jax.result_info = "result[1]['s1b3c2_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b3c3_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s1b3c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b0c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b0c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b0c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b0c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b0c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b0c3_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b0skip_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b0skip_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b1c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b1c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b1c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b1c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b1c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b1c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b2c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b2c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b2c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b2c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b2c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b2c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b3c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b3c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b3c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b3c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b3c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b3c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b4c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b4c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b4c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b4c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b4c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b4c3_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b5c1_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b5c1_variance']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b5c2_mean']"}, tensor<256xf32> {jax.result_info = "result[1]['s2b5c2_variance']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b5c3_mean']"}, tensor<1024xf32> {jax.result_info = "result[1]['s2b5c3_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b0c1_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b0c1_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b0c2_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b0c2_variance']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b0c3_mean']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b0c3_variance']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b0skip_mean']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b0skip_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b1c1_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b1c1_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b1c2_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b1c2_variance']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b1c3_mean']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b1c3_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b2c1_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b2c1_variance']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b2c2_mean']"}, tensor<512xf32> {jax.result_info = "result[1]['s3b2c2_variance']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b2c3_mean']"}, tensor<2048xf32> {jax.result_info = "result[1]['s3b2c3_variance']"}, tensor<64xf32> {jax.result_info = "result[1]['stem_mean']"}, tensor<64xf32> {jax.result_info = "result[1]['stem_variance']"}) {
    %0 = stablehlo.convolution(%arg267, %arg158) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[3, 3], [3, 3]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x224x224x3xf32>, tensor<7x7x3x64xf32>) -> tensor<2x112x112x64xf32>
    %1:3 = call @batch_norm(%0, %arg159, %arg160, %arg265, %arg266) : (tensor<2x112x112x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x112x112x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %2 = call @relu(%1#0) : (tensor<2x112x112x64xf32>) -> tensor<2x112x112x64xf32>
    %cst = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %3 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %4 = "stablehlo.reduce_window"(%2, %3) <{base_dilations = array<i64: 1, 1, 1, 1>, padding = dense<[[0, 0], [1, 1], [1, 1], [0, 0]]> : tensor<4x2xi64>, window_dilations = array<i64: 1, 1, 1, 1>, window_dimensions = array<i64: 1, 3, 3, 1>, window_strides = array<i64: 1, 2, 2, 1>}> ({
    ^bb0(%arg268: tensor<f32>, %arg269: tensor<f32>):
      %191 = stablehlo.maximum %arg268, %arg269 : tensor<f32>
      stablehlo.return %191 : tensor<f32>
    }) : (tensor<2x112x112x64xf32>, tensor<f32>) -> tensor<2x56x56x64xf32>
    %5 = stablehlo.convolution(%4, %arg2) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<1x1x64x64xf32>) -> tensor<2x56x56x64xf32>
    %6:3 = call @batch_norm_0(%5, %arg3, %arg4, %arg161, %arg162) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %7 = call @relu_1(%6#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %8 = stablehlo.convolution(%7, %arg5) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<3x3x64x64xf32>) -> tensor<2x56x56x64xf32>
    %9:3 = call @batch_norm_0(%8, %arg6, %arg7, %arg163, %arg164) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %10 = call @relu_1(%9#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %11 = stablehlo.convolution(%10, %arg8) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<1x1x64x256xf32>) -> tensor<2x56x56x256xf32>
    %12:3 = call @batch_norm_2(%11, %arg9, %arg10, %arg165, %arg166) : (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %13 = stablehlo.convolution(%4, %arg11) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<1x1x64x256xf32>) -> tensor<2x56x56x256xf32>
    %14:3 = call @batch_norm_2(%13, %arg12, %arg13, %arg167, %arg168) : (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %15 = stablehlo.add %12#0, %14#0 : tensor<2x56x56x256xf32>
    %16 = call @relu_3(%15) : (tensor<2x56x56x256xf32>) -> tensor<2x56x56x256xf32>
    %17 = stablehlo.convolution(%16, %arg14) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x256xf32>, tensor<1x1x256x64xf32>) -> tensor<2x56x56x64xf32>
    %18:3 = call @batch_norm_0(%17, %arg15, %arg16, %arg169, %arg170) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %19 = call @relu_1(%18#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %20 = stablehlo.convolution(%19, %arg17) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<3x3x64x64xf32>) -> tensor<2x56x56x64xf32>
    %21:3 = call @batch_norm_0(%20, %arg18, %arg19, %arg171, %arg172) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %22 = call @relu_1(%21#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %23 = stablehlo.convolution(%22, %arg20) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<1x1x64x256xf32>) -> tensor<2x56x56x256xf32>
    %24:3 = call @batch_norm_2(%23, %arg21, %arg22, %arg173, %arg174) : (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %25 = stablehlo.add %24#0, %16 : tensor<2x56x56x256xf32>
    %26 = call @relu_3(%25) : (tensor<2x56x56x256xf32>) -> tensor<2x56x56x256xf32>
    %27 = stablehlo.convolution(%26, %arg23) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x256xf32>, tensor<1x1x256x64xf32>) -> tensor<2x56x56x64xf32>
    %28:3 = call @batch_norm_0(%27, %arg24, %arg25, %arg175, %arg176) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %29 = call @relu_1(%28#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %30 = stablehlo.convolution(%29, %arg26) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<3x3x64x64xf32>) -> tensor<2x56x56x64xf32>
    %31:3 = call @batch_norm_0(%30, %arg27, %arg28, %arg177, %arg178) : (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>)
    %32 = call @relu_1(%31#0) : (tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32>
    %33 = stablehlo.convolution(%32, %arg29) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x64xf32>, tensor<1x1x64x256xf32>) -> tensor<2x56x56x256xf32>
    %34:3 = call @batch_norm_2(%33, %arg30, %arg31, %arg179, %arg180) : (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %35 = stablehlo.add %34#0, %26 : tensor<2x56x56x256xf32>
    %36 = call @relu_3(%35) : (tensor<2x56x56x256xf32>) -> tensor<2x56x56x256xf32>
    %37 = stablehlo.convolution(%36, %arg32) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x256xf32>, tensor<1x1x256x128xf32>) -> tensor<2x56x56x128xf32>
    %38:3 = call @batch_norm_4(%37, %arg33, %arg34, %arg181, %arg182) : (tensor<2x56x56x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x56x56x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %39 = call @relu_5(%38#0) : (tensor<2x56x56x128xf32>) -> tensor<2x56x56x128xf32>
    %40 = stablehlo.convolution(%39, %arg35) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x128xf32>, tensor<3x3x128x128xf32>) -> tensor<2x28x28x128xf32>
    %41:3 = call @batch_norm_6(%40, %arg36, %arg37, %arg183, %arg184) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %42 = call @relu_7(%41#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %43 = stablehlo.convolution(%42, %arg38) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<1x1x128x512xf32>) -> tensor<2x28x28x512xf32>
    %44:3 = call @batch_norm_8(%43, %arg39, %arg40, %arg185, %arg186) : (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %45 = stablehlo.convolution(%36, %arg41) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x56x56x256xf32>, tensor<1x1x256x512xf32>) -> tensor<2x28x28x512xf32>
    %46:3 = call @batch_norm_8(%45, %arg42, %arg43, %arg187, %arg188) : (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %47 = stablehlo.add %44#0, %46#0 : tensor<2x28x28x512xf32>
    %48 = call @relu_9(%47) : (tensor<2x28x28x512xf32>) -> tensor<2x28x28x512xf32>
    %49 = stablehlo.convolution(%48, %arg44) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x512xf32>, tensor<1x1x512x128xf32>) -> tensor<2x28x28x128xf32>
    %50:3 = call @batch_norm_6(%49, %arg45, %arg46, %arg189, %arg190) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %51 = call @relu_7(%50#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %52 = stablehlo.convolution(%51, %arg47) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<3x3x128x128xf32>) -> tensor<2x28x28x128xf32>
    %53:3 = call @batch_norm_6(%52, %arg48, %arg49, %arg191, %arg192) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %54 = call @relu_7(%53#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %55 = stablehlo.convolution(%54, %arg50) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<1x1x128x512xf32>) -> tensor<2x28x28x512xf32>
    %56:3 = call @batch_norm_8(%55, %arg51, %arg52, %arg193, %arg194) : (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %57 = stablehlo.add %56#0, %48 : tensor<2x28x28x512xf32>
    %58 = call @relu_9(%57) : (tensor<2x28x28x512xf32>) -> tensor<2x28x28x512xf32>
    %59 = stablehlo.convolution(%58, %arg53) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x512xf32>, tensor<1x1x512x128xf32>) -> tensor<2x28x28x128xf32>
    %60:3 = call @batch_norm_6(%59, %arg54, %arg55, %arg195, %arg196) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %61 = call @relu_7(%60#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %62 = stablehlo.convolution(%61, %arg56) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<3x3x128x128xf32>) -> tensor<2x28x28x128xf32>
    %63:3 = call @batch_norm_6(%62, %arg57, %arg58, %arg197, %arg198) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %64 = call @relu_7(%63#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %65 = stablehlo.convolution(%64, %arg59) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<1x1x128x512xf32>) -> tensor<2x28x28x512xf32>
    %66:3 = call @batch_norm_8(%65, %arg60, %arg61, %arg199, %arg200) : (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %67 = stablehlo.add %66#0, %58 : tensor<2x28x28x512xf32>
    %68 = call @relu_9(%67) : (tensor<2x28x28x512xf32>) -> tensor<2x28x28x512xf32>
    %69 = stablehlo.convolution(%68, %arg62) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x512xf32>, tensor<1x1x512x128xf32>) -> tensor<2x28x28x128xf32>
    %70:3 = call @batch_norm_6(%69, %arg63, %arg64, %arg201, %arg202) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %71 = call @relu_7(%70#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %72 = stablehlo.convolution(%71, %arg65) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<3x3x128x128xf32>) -> tensor<2x28x28x128xf32>
    %73:3 = call @batch_norm_6(%72, %arg66, %arg67, %arg203, %arg204) : (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>)
    %74 = call @relu_7(%73#0) : (tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32>
    %75 = stablehlo.convolution(%74, %arg68) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x128xf32>, tensor<1x1x128x512xf32>) -> tensor<2x28x28x512xf32>
    %76:3 = call @batch_norm_8(%75, %arg69, %arg70, %arg205, %arg206) : (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %77 = stablehlo.add %76#0, %68 : tensor<2x28x28x512xf32>
    %78 = call @relu_9(%77) : (tensor<2x28x28x512xf32>) -> tensor<2x28x28x512xf32>
    %79 = stablehlo.convolution(%78, %arg71) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x512xf32>, tensor<1x1x512x256xf32>) -> tensor<2x28x28x256xf32>
    %80:3 = call @batch_norm_10(%79, %arg72, %arg73, %arg207, %arg208) : (tensor<2x28x28x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x28x28x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %81 = call @relu_11(%80#0) : (tensor<2x28x28x256xf32>) -> tensor<2x28x28x256xf32>
    %82 = stablehlo.convolution(%81, %arg74) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %83:3 = call @batch_norm_12(%82, %arg75, %arg76, %arg209, %arg210) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %84 = call @relu_13(%83#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %85 = stablehlo.convolution(%84, %arg77) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %86:3 = call @batch_norm_14(%85, %arg78, %arg79, %arg211, %arg212) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %87 = stablehlo.convolution(%78, %arg80) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x28x28x512xf32>, tensor<1x1x512x1024xf32>) -> tensor<2x14x14x1024xf32>
    %88:3 = call @batch_norm_14(%87, %arg81, %arg82, %arg213, %arg214) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %89 = stablehlo.add %86#0, %88#0 : tensor<2x14x14x1024xf32>
    %90 = call @relu_15(%89) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %91 = stablehlo.convolution(%90, %arg83) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x256xf32>) -> tensor<2x14x14x256xf32>
    %92:3 = call @batch_norm_12(%91, %arg84, %arg85, %arg215, %arg216) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %93 = call @relu_13(%92#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %94 = stablehlo.convolution(%93, %arg86) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %95:3 = call @batch_norm_12(%94, %arg87, %arg88, %arg217, %arg218) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %96 = call @relu_13(%95#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %97 = stablehlo.convolution(%96, %arg89) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %98:3 = call @batch_norm_14(%97, %arg90, %arg91, %arg219, %arg220) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %99 = stablehlo.add %98#0, %90 : tensor<2x14x14x1024xf32>
    %100 = call @relu_15(%99) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %101 = stablehlo.convolution(%100, %arg92) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x256xf32>) -> tensor<2x14x14x256xf32>
    %102:3 = call @batch_norm_12(%101, %arg93, %arg94, %arg221, %arg222) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %103 = call @relu_13(%102#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %104 = stablehlo.convolution(%103, %arg95) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %105:3 = call @batch_norm_12(%104, %arg96, %arg97, %arg223, %arg224) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %106 = call @relu_13(%105#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %107 = stablehlo.convolution(%106, %arg98) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %108:3 = call @batch_norm_14(%107, %arg99, %arg100, %arg225, %arg226) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %109 = stablehlo.add %108#0, %100 : tensor<2x14x14x1024xf32>
    %110 = call @relu_15(%109) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %111 = stablehlo.convolution(%110, %arg101) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x256xf32>) -> tensor<2x14x14x256xf32>
    %112:3 = call @batch_norm_12(%111, %arg102, %arg103, %arg227, %arg228) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %113 = call @relu_13(%112#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %114 = stablehlo.convolution(%113, %arg104) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %115:3 = call @batch_norm_12(%114, %arg105, %arg106, %arg229, %arg230) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %116 = call @relu_13(%115#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %117 = stablehlo.convolution(%116, %arg107) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %118:3 = call @batch_norm_14(%117, %arg108, %arg109, %arg231, %arg232) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %119 = stablehlo.add %118#0, %110 : tensor<2x14x14x1024xf32>
    %120 = call @relu_15(%119) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %121 = stablehlo.convolution(%120, %arg110) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x256xf32>) -> tensor<2x14x14x256xf32>
    %122:3 = call @batch_norm_12(%121, %arg111, %arg112, %arg233, %arg234) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %123 = call @relu_13(%122#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %124 = stablehlo.convolution(%123, %arg113) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %125:3 = call @batch_norm_12(%124, %arg114, %arg115, %arg235, %arg236) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %126 = call @relu_13(%125#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %127 = stablehlo.convolution(%126, %arg116) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %128:3 = call @batch_norm_14(%127, %arg117, %arg118, %arg237, %arg238) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %129 = stablehlo.add %128#0, %120 : tensor<2x14x14x1024xf32>
    %130 = call @relu_15(%129) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %131 = stablehlo.convolution(%130, %arg119) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x256xf32>) -> tensor<2x14x14x256xf32>
    %132:3 = call @batch_norm_12(%131, %arg120, %arg121, %arg239, %arg240) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %133 = call @relu_13(%132#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %134 = stablehlo.convolution(%133, %arg122) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<3x3x256x256xf32>) -> tensor<2x14x14x256xf32>
    %135:3 = call @batch_norm_12(%134, %arg123, %arg124, %arg241, %arg242) : (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>)
    %136 = call @relu_13(%135#0) : (tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32>
    %137 = stablehlo.convolution(%136, %arg125) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x256xf32>, tensor<1x1x256x1024xf32>) -> tensor<2x14x14x1024xf32>
    %138:3 = call @batch_norm_14(%137, %arg126, %arg127, %arg243, %arg244) : (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>)
    %139 = stablehlo.add %138#0, %130 : tensor<2x14x14x1024xf32>
    %140 = call @relu_15(%139) : (tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32>
    %141 = stablehlo.convolution(%140, %arg128) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x512xf32>) -> tensor<2x14x14x512xf32>
    %142:3 = call @batch_norm_16(%141, %arg129, %arg130, %arg245, %arg246) : (tensor<2x14x14x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x14x14x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %143 = call @relu_17(%142#0) : (tensor<2x14x14x512xf32>) -> tensor<2x14x14x512xf32>
    %144 = stablehlo.convolution(%143, %arg131) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x512xf32>, tensor<3x3x512x512xf32>) -> tensor<2x7x7x512xf32>
    %145:3 = call @batch_norm_18(%144, %arg132, %arg133, %arg247, %arg248) : (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %146 = call @relu_19(%145#0) : (tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32>
    %147 = stablehlo.convolution(%146, %arg134) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x512xf32>, tensor<1x1x512x2048xf32>) -> tensor<2x7x7x2048xf32>
    %148:3 = call @batch_norm_20(%147, %arg135, %arg136, %arg249, %arg250) : (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>) -> (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>)
    %149 = stablehlo.convolution(%140, %arg137) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [2, 2], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x14x14x1024xf32>, tensor<1x1x1024x2048xf32>) -> tensor<2x7x7x2048xf32>
    %150:3 = call @batch_norm_20(%149, %arg138, %arg139, %arg251, %arg252) : (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>) -> (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>)
    %151 = stablehlo.add %148#0, %150#0 : tensor<2x7x7x2048xf32>
    %152 = call @relu_21(%151) : (tensor<2x7x7x2048xf32>) -> tensor<2x7x7x2048xf32>
    %153 = stablehlo.convolution(%152, %arg140) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x2048xf32>, tensor<1x1x2048x512xf32>) -> tensor<2x7x7x512xf32>
    %154:3 = call @batch_norm_18(%153, %arg141, %arg142, %arg253, %arg254) : (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %155 = call @relu_19(%154#0) : (tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32>
    %156 = stablehlo.convolution(%155, %arg143) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<2x7x7x512xf32>
    %157:3 = call @batch_norm_18(%156, %arg144, %arg145, %arg255, %arg256) : (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %158 = call @relu_19(%157#0) : (tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32>
    %159 = stablehlo.convolution(%158, %arg146) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x512xf32>, tensor<1x1x512x2048xf32>) -> tensor<2x7x7x2048xf32>
    %160:3 = call @batch_norm_20(%159, %arg147, %arg148, %arg257, %arg258) : (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>) -> (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>)
    %161 = stablehlo.add %160#0, %152 : tensor<2x7x7x2048xf32>
    %162 = call @relu_21(%161) : (tensor<2x7x7x2048xf32>) -> tensor<2x7x7x2048xf32>
    %163 = stablehlo.convolution(%162, %arg149) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x2048xf32>, tensor<1x1x2048x512xf32>) -> tensor<2x7x7x512xf32>
    %164:3 = call @batch_norm_18(%163, %arg150, %arg151, %arg259, %arg260) : (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %165 = call @relu_19(%164#0) : (tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32>
    %166 = stablehlo.convolution(%165, %arg152) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x512xf32>, tensor<3x3x512x512xf32>) -> tensor<2x7x7x512xf32>
    %167:3 = call @batch_norm_18(%166, %arg153, %arg154, %arg261, %arg262) : (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>)
    %168 = call @relu_19(%167#0) : (tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32>
    %169 = stablehlo.convolution(%168, %arg155) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {stride = [1, 1], pad = [[0, 0], [0, 0]], lhs_dilate = [1, 1], rhs_dilate = [1, 1], reverse = [false, false]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64, precision_config = [#stablehlo<precision DEFAULT>, #stablehlo<precision DEFAULT>]} : (tensor<2x7x7x512xf32>, tensor<1x1x512x2048xf32>) -> tensor<2x7x7x2048xf32>
    %170:3 = call @batch_norm_20(%169, %arg156, %arg157, %arg263, %arg264) : (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>) -> (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>)
    %171 = stablehlo.add %170#0, %162 : tensor<2x7x7x2048xf32>
    %172 = call @relu_21(%171) : (tensor<2x7x7x2048xf32>) -> tensor<2x7x7x2048xf32>
    %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %173 = stablehlo.reduce(%172 init: %cst_0) applies stablehlo.add across dimensions = [1, 2] : (tensor<2x7x7x2048xf32>, tensor<f32>) -> tensor<2x2048xf32>
    %cst_1 = stablehlo.constant dense<4.900000e+01> : tensor<f32>
    %174 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<2x2048xf32>
    %175 = stablehlo.divide %173, %174 : tensor<2x2048xf32>
    %176 = stablehlo.dot_general %175, %arg1, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<2x2048xf32>, tensor<2048x1000xf32>) -> tensor<2x1000xf32>
    %177 = stablehlo.broadcast_in_dim %arg0, dims = [1] : (tensor<1000xf32>) -> tensor<1x1000xf32>
    %178 = stablehlo.broadcast_in_dim %177, dims = [0, 1] : (tensor<1x1000xf32>) -> tensor<2x1000xf32>
    %179 = stablehlo.add %176, %178 : tensor<2x1000xf32>
    %cst_2 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %180 = stablehlo.reduce(%179 init: %cst_2) applies stablehlo.maximum across dimensions = [1] : (tensor<2x1000xf32>, tensor<f32>) -> tensor<2xf32>
    %cst_3 = stablehlo.constant dense<0xFF800000> : tensor<f32>
    %181 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2xf32>
    %182 = stablehlo.maximum %181, %180 : tensor<2xf32>
    %183 = stablehlo.broadcast_in_dim %182, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %184 = stablehlo.broadcast_in_dim %183, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x1000xf32>
    %185 = stablehlo.subtract %179, %184 : tensor<2x1000xf32>
    %186 = stablehlo.exponential %185 : tensor<2x1000xf32>
    %cst_4 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %187 = stablehlo.reduce(%186 init: %cst_4) applies stablehlo.add across dimensions = [1] : (tensor<2x1000xf32>, tensor<f32>) -> tensor<2xf32>
    %188 = stablehlo.broadcast_in_dim %187, dims = [0] : (tensor<2xf32>) -> tensor<2x1xf32>
    %189 = stablehlo.broadcast_in_dim %188, dims = [0, 1] : (tensor<2x1xf32>) -> tensor<2x1000xf32>
    %190 = stablehlo.divide %186, %189 : tensor<2x1000xf32>
    return %190, %6#1, %6#2, %9#1, %9#2, %12#1, %12#2, %14#1, %14#2, %18#1, %18#2, %21#1, %21#2, %24#1, %24#2, %28#1, %28#2, %31#1, %31#2, %34#1, %34#2, %38#1, %38#2, %41#1, %41#2, %44#1, %44#2, %46#1, %46#2, %50#1, %50#2, %53#1, %53#2, %56#1, %56#2, %60#1, %60#2, %63#1, %63#2, %66#1, %66#2, %70#1, %70#2, %73#1, %73#2, %76#1, %76#2, %80#1, %80#2, %83#1, %83#2, %86#1, %86#2, %88#1, %88#2, %92#1, %92#2, %95#1, %95#2, %98#1, %98#2, %102#1, %102#2, %105#1, %105#2, %108#1, %108#2, %112#1, %112#2, %115#1, %115#2, %118#1, %118#2, %122#1, %122#2, %125#1, %125#2, %128#1, %128#2, %132#1, %132#2, %135#1, %135#2, %138#1, %138#2, %142#1, %142#2, %145#1, %145#2, %148#1, %148#2, %150#1, %150#2, %154#1, %154#2, %157#1, %157#2, %160#1, %160#2, %164#1, %164#2, %167#1, %167#2, %170#1, %170#2, %1#1, %1#2 : tensor<2x1000xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<256xf32>, tensor<256xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<64xf32>, tensor<256xf32>, tensor<256xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<512xf32>, tensor<512xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<512xf32>, tensor<512xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<128xf32>, tensor<512xf32>, tensor<512xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<256xf32>, tensor<1024xf32>, tensor<1024xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<512xf32>, tensor<2048xf32>, tensor<2048xf32>, tensor<64xf32>, tensor<64xf32>
  }
  func.func private @batch_norm(%arg0: tensor<2x112x112x64xf32>, %arg1: tensor<64xf32>, %arg2: tensor<64xf32>, %arg3: tensor<64xf32>, %arg4: tensor<64xf32>) -> (tensor<2x112x112x64xf32>, tensor<64xf32>, tensor<64xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x112x112x64xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_0 = stablehlo.constant dense<2.508800e+04> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %2 = stablehlo.divide %0, %1 : tensor<64xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x112x112x64xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x112x112x64xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_2 = stablehlo.constant dense<2.508800e+04> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %6 = stablehlo.divide %4, %5 : tensor<64xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<64xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<64xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<64xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x112x112x64xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x112x112x64xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %15 = stablehlo.add %10, %14 : tensor<64xf32>
    %16 = stablehlo.rsqrt %15 : tensor<64xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<64xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x112x112x64xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x112x112x64xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x112x112x64xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x112x112x64xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<64xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<64xf32>
    %28 = stablehlo.add %25, %27 : tensor<64xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<64xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<64xf32>
    %33 = stablehlo.add %30, %32 : tensor<64xf32>
    return %23, %28, %33 : tensor<2x112x112x64xf32>, tensor<64xf32>, tensor<64xf32>
  }
  func.func private @relu(%arg0: tensor<2x112x112x64xf32>) -> tensor<2x112x112x64xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x112x112x64xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x112x112x64xf32>
    return %1 : tensor<2x112x112x64xf32>
  }
  func.func private @batch_norm_0(%arg0: tensor<2x56x56x64xf32>, %arg1: tensor<64xf32>, %arg2: tensor<64xf32>, %arg3: tensor<64xf32>, %arg4: tensor<64xf32>) -> (tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x64xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_0 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %2 = stablehlo.divide %0, %1 : tensor<64xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x56x56x64xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x64xf32>, tensor<f32>) -> tensor<64xf32>
    %cst_2 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %6 = stablehlo.divide %4, %5 : tensor<64xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<64xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<64xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<64xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x56x56x64xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x56x56x64xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %15 = stablehlo.add %10, %14 : tensor<64xf32>
    %16 = stablehlo.rsqrt %15 : tensor<64xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<64xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x56x56x64xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x56x56x64xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<64xf32>) -> tensor<1x1x1x64xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x64xf32>) -> tensor<2x56x56x64xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x56x56x64xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<64xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<64xf32>
    %28 = stablehlo.add %25, %27 : tensor<64xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<64xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<64xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<64xf32>
    %33 = stablehlo.add %30, %32 : tensor<64xf32>
    return %23, %28, %33 : tensor<2x56x56x64xf32>, tensor<64xf32>, tensor<64xf32>
  }
  func.func private @relu_1(%arg0: tensor<2x56x56x64xf32>) -> tensor<2x56x56x64xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x56x56x64xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x56x56x64xf32>
    return %1 : tensor<2x56x56x64xf32>
  }
  func.func private @batch_norm_2(%arg0: tensor<2x56x56x256xf32>, %arg1: tensor<256xf32>, %arg2: tensor<256xf32>, %arg3: tensor<256xf32>, %arg4: tensor<256xf32>) -> (tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_0 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %2 = stablehlo.divide %0, %1 : tensor<256xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x56x56x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_2 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %6 = stablehlo.divide %4, %5 : tensor<256xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<256xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<256xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<256xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x56x56x256xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x56x56x256xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %15 = stablehlo.add %10, %14 : tensor<256xf32>
    %16 = stablehlo.rsqrt %15 : tensor<256xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<256xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x56x56x256xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x56x56x256xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x56x56x256xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x56x56x256xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<256xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<256xf32>
    %28 = stablehlo.add %25, %27 : tensor<256xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<256xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<256xf32>
    %33 = stablehlo.add %30, %32 : tensor<256xf32>
    return %23, %28, %33 : tensor<2x56x56x256xf32>, tensor<256xf32>, tensor<256xf32>
  }
  func.func private @relu_3(%arg0: tensor<2x56x56x256xf32>) -> tensor<2x56x56x256xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x56x56x256xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x56x56x256xf32>
    return %1 : tensor<2x56x56x256xf32>
  }
  func.func private @batch_norm_4(%arg0: tensor<2x56x56x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<128xf32>, %arg3: tensor<128xf32>, %arg4: tensor<128xf32>) -> (tensor<2x56x56x128xf32>, tensor<128xf32>, tensor<128xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x128xf32>, tensor<f32>) -> tensor<128xf32>
    %cst_0 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %2 = stablehlo.divide %0, %1 : tensor<128xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x56x56x128xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x56x56x128xf32>, tensor<f32>) -> tensor<128xf32>
    %cst_2 = stablehlo.constant dense<6.272000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %6 = stablehlo.divide %4, %5 : tensor<128xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<128xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<128xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x56x56x128xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x56x56x128xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %15 = stablehlo.add %10, %14 : tensor<128xf32>
    %16 = stablehlo.rsqrt %15 : tensor<128xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<128xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x56x56x128xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x56x56x128xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x56x56x128xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x56x56x128xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<128xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<128xf32>
    %28 = stablehlo.add %25, %27 : tensor<128xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<128xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<128xf32>
    %33 = stablehlo.add %30, %32 : tensor<128xf32>
    return %23, %28, %33 : tensor<2x56x56x128xf32>, tensor<128xf32>, tensor<128xf32>
  }
  func.func private @relu_5(%arg0: tensor<2x56x56x128xf32>) -> tensor<2x56x56x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x56x56x128xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x56x56x128xf32>
    return %1 : tensor<2x56x56x128xf32>
  }
  func.func private @batch_norm_6(%arg0: tensor<2x28x28x128xf32>, %arg1: tensor<128xf32>, %arg2: tensor<128xf32>, %arg3: tensor<128xf32>, %arg4: tensor<128xf32>) -> (tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x128xf32>, tensor<f32>) -> tensor<128xf32>
    %cst_0 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %2 = stablehlo.divide %0, %1 : tensor<128xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x28x28x128xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x128xf32>, tensor<f32>) -> tensor<128xf32>
    %cst_2 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %6 = stablehlo.divide %4, %5 : tensor<128xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<128xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<128xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<128xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x28x28x128xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x28x28x128xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %15 = stablehlo.add %10, %14 : tensor<128xf32>
    %16 = stablehlo.rsqrt %15 : tensor<128xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<128xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x28x28x128xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x28x28x128xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<128xf32>) -> tensor<1x1x1x128xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x128xf32>) -> tensor<2x28x28x128xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x28x28x128xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<128xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<128xf32>
    %28 = stablehlo.add %25, %27 : tensor<128xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<128xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<128xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<128xf32>
    %33 = stablehlo.add %30, %32 : tensor<128xf32>
    return %23, %28, %33 : tensor<2x28x28x128xf32>, tensor<128xf32>, tensor<128xf32>
  }
  func.func private @relu_7(%arg0: tensor<2x28x28x128xf32>) -> tensor<2x28x28x128xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x28x28x128xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x28x28x128xf32>
    return %1 : tensor<2x28x28x128xf32>
  }
  func.func private @batch_norm_8(%arg0: tensor<2x28x28x512xf32>, %arg1: tensor<512xf32>, %arg2: tensor<512xf32>, %arg3: tensor<512xf32>, %arg4: tensor<512xf32>) -> (tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_0 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %2 = stablehlo.divide %0, %1 : tensor<512xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x28x28x512xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_2 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %6 = stablehlo.divide %4, %5 : tensor<512xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<512xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<512xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<512xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x28x28x512xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x28x28x512xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %15 = stablehlo.add %10, %14 : tensor<512xf32>
    %16 = stablehlo.rsqrt %15 : tensor<512xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<512xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x28x28x512xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x28x28x512xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x28x28x512xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x28x28x512xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<512xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<512xf32>
    %28 = stablehlo.add %25, %27 : tensor<512xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<512xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<512xf32>
    %33 = stablehlo.add %30, %32 : tensor<512xf32>
    return %23, %28, %33 : tensor<2x28x28x512xf32>, tensor<512xf32>, tensor<512xf32>
  }
  func.func private @relu_9(%arg0: tensor<2x28x28x512xf32>) -> tensor<2x28x28x512xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x28x28x512xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x28x28x512xf32>
    return %1 : tensor<2x28x28x512xf32>
  }
  func.func private @batch_norm_10(%arg0: tensor<2x28x28x256xf32>, %arg1: tensor<256xf32>, %arg2: tensor<256xf32>, %arg3: tensor<256xf32>, %arg4: tensor<256xf32>) -> (tensor<2x28x28x256xf32>, tensor<256xf32>, tensor<256xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_0 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %2 = stablehlo.divide %0, %1 : tensor<256xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x28x28x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x28x28x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_2 = stablehlo.constant dense<1.568000e+03> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %6 = stablehlo.divide %4, %5 : tensor<256xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<256xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<256xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<256xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x28x28x256xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x28x28x256xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %15 = stablehlo.add %10, %14 : tensor<256xf32>
    %16 = stablehlo.rsqrt %15 : tensor<256xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<256xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x28x28x256xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x28x28x256xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x28x28x256xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x28x28x256xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<256xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<256xf32>
    %28 = stablehlo.add %25, %27 : tensor<256xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<256xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<256xf32>
    %33 = stablehlo.add %30, %32 : tensor<256xf32>
    return %23, %28, %33 : tensor<2x28x28x256xf32>, tensor<256xf32>, tensor<256xf32>
  }
  func.func private @relu_11(%arg0: tensor<2x28x28x256xf32>) -> tensor<2x28x28x256xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x28x28x256xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x28x28x256xf32>
    return %1 : tensor<2x28x28x256xf32>
  }
  func.func private @batch_norm_12(%arg0: tensor<2x14x14x256xf32>, %arg1: tensor<256xf32>, %arg2: tensor<256xf32>, %arg3: tensor<256xf32>, %arg4: tensor<256xf32>) -> (tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_0 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %2 = stablehlo.divide %0, %1 : tensor<256xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x14x14x256xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x256xf32>, tensor<f32>) -> tensor<256xf32>
    %cst_2 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %6 = stablehlo.divide %4, %5 : tensor<256xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<256xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<256xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<256xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x14x14x256xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x14x14x256xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %15 = stablehlo.add %10, %14 : tensor<256xf32>
    %16 = stablehlo.rsqrt %15 : tensor<256xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<256xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x14x14x256xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x14x14x256xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<256xf32>) -> tensor<1x1x1x256xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x256xf32>) -> tensor<2x14x14x256xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x14x14x256xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<256xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<256xf32>
    %28 = stablehlo.add %25, %27 : tensor<256xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<256xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<256xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<256xf32>
    %33 = stablehlo.add %30, %32 : tensor<256xf32>
    return %23, %28, %33 : tensor<2x14x14x256xf32>, tensor<256xf32>, tensor<256xf32>
  }
  func.func private @relu_13(%arg0: tensor<2x14x14x256xf32>) -> tensor<2x14x14x256xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x14x14x256xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x14x14x256xf32>
    return %1 : tensor<2x14x14x256xf32>
  }
  func.func private @batch_norm_14(%arg0: tensor<2x14x14x1024xf32>, %arg1: tensor<1024xf32>, %arg2: tensor<1024xf32>, %arg3: tensor<1024xf32>, %arg4: tensor<1024xf32>) -> (tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %cst_0 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %2 = stablehlo.divide %0, %1 : tensor<1024xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x14x14x1024xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    %cst_2 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %6 = stablehlo.divide %4, %5 : tensor<1024xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<1024xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<1024xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<1024xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<1024xf32>) -> tensor<1x1x1x1024xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x1024xf32>) -> tensor<2x14x14x1024xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x14x14x1024xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %15 = stablehlo.add %10, %14 : tensor<1024xf32>
    %16 = stablehlo.rsqrt %15 : tensor<1024xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<1024xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<1024xf32>) -> tensor<1x1x1x1024xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x1024xf32>) -> tensor<2x14x14x1024xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x14x14x1024xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<1024xf32>) -> tensor<1x1x1x1024xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x1024xf32>) -> tensor<2x14x14x1024xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x14x14x1024xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<1024xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<1024xf32>
    %28 = stablehlo.add %25, %27 : tensor<1024xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<1024xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<1024xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<1024xf32>
    %33 = stablehlo.add %30, %32 : tensor<1024xf32>
    return %23, %28, %33 : tensor<2x14x14x1024xf32>, tensor<1024xf32>, tensor<1024xf32>
  }
  func.func private @relu_15(%arg0: tensor<2x14x14x1024xf32>) -> tensor<2x14x14x1024xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x14x14x1024xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x14x14x1024xf32>
    return %1 : tensor<2x14x14x1024xf32>
  }
  func.func private @batch_norm_16(%arg0: tensor<2x14x14x512xf32>, %arg1: tensor<512xf32>, %arg2: tensor<512xf32>, %arg3: tensor<512xf32>, %arg4: tensor<512xf32>) -> (tensor<2x14x14x512xf32>, tensor<512xf32>, tensor<512xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_0 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %2 = stablehlo.divide %0, %1 : tensor<512xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x14x14x512xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x14x14x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_2 = stablehlo.constant dense<3.920000e+02> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %6 = stablehlo.divide %4, %5 : tensor<512xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<512xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<512xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<512xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x14x14x512xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x14x14x512xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %15 = stablehlo.add %10, %14 : tensor<512xf32>
    %16 = stablehlo.rsqrt %15 : tensor<512xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<512xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x14x14x512xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x14x14x512xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x14x14x512xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x14x14x512xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<512xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<512xf32>
    %28 = stablehlo.add %25, %27 : tensor<512xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<512xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<512xf32>
    %33 = stablehlo.add %30, %32 : tensor<512xf32>
    return %23, %28, %33 : tensor<2x14x14x512xf32>, tensor<512xf32>, tensor<512xf32>
  }
  func.func private @relu_17(%arg0: tensor<2x14x14x512xf32>) -> tensor<2x14x14x512xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x14x14x512xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x14x14x512xf32>
    return %1 : tensor<2x14x14x512xf32>
  }
  func.func private @batch_norm_18(%arg0: tensor<2x7x7x512xf32>, %arg1: tensor<512xf32>, %arg2: tensor<512xf32>, %arg3: tensor<512xf32>, %arg4: tensor<512xf32>) -> (tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x7x7x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_0 = stablehlo.constant dense<9.800000e+01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %2 = stablehlo.divide %0, %1 : tensor<512xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x7x7x512xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x7x7x512xf32>, tensor<f32>) -> tensor<512xf32>
    %cst_2 = stablehlo.constant dense<9.800000e+01> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %6 = stablehlo.divide %4, %5 : tensor<512xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<512xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<512xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<512xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x7x7x512xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x7x7x512xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %15 = stablehlo.add %10, %14 : tensor<512xf32>
    %16 = stablehlo.rsqrt %15 : tensor<512xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<512xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x7x7x512xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x7x7x512xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<512xf32>) -> tensor<1x1x1x512xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x512xf32>) -> tensor<2x7x7x512xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x7x7x512xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<512xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<512xf32>
    %28 = stablehlo.add %25, %27 : tensor<512xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<512xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<512xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<512xf32>
    %33 = stablehlo.add %30, %32 : tensor<512xf32>
    return %23, %28, %33 : tensor<2x7x7x512xf32>, tensor<512xf32>, tensor<512xf32>
  }
  func.func private @relu_19(%arg0: tensor<2x7x7x512xf32>) -> tensor<2x7x7x512xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x7x7x512xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x7x7x512xf32>
    return %1 : tensor<2x7x7x512xf32>
  }
  func.func private @batch_norm_20(%arg0: tensor<2x7x7x2048xf32>, %arg1: tensor<2048xf32>, %arg2: tensor<2048xf32>, %arg3: tensor<2048xf32>, %arg4: tensor<2048xf32>) -> (tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.reduce(%arg0 init: %cst) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x7x7x2048xf32>, tensor<f32>) -> tensor<2048xf32>
    %cst_0 = stablehlo.constant dense<9.800000e+01> : tensor<f32>
    %1 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %2 = stablehlo.divide %0, %1 : tensor<2048xf32>
    %3 = stablehlo.multiply %arg0, %arg0 : tensor<2x7x7x2048xf32>
    %cst_1 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %4 = stablehlo.reduce(%3 init: %cst_1) applies stablehlo.add across dimensions = [0, 1, 2] : (tensor<2x7x7x2048xf32>, tensor<f32>) -> tensor<2048xf32>
    %cst_2 = stablehlo.constant dense<9.800000e+01> : tensor<f32>
    %5 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %6 = stablehlo.divide %4, %5 : tensor<2048xf32>
    %7 = stablehlo.multiply %2, %2 : tensor<2048xf32>
    %8 = stablehlo.subtract %6, %7 : tensor<2048xf32>
    %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %10 = stablehlo.maximum %9, %8 : tensor<2048xf32>
    %11 = stablehlo.broadcast_in_dim %2, dims = [3] : (tensor<2048xf32>) -> tensor<1x1x1x2048xf32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1, 2, 3] : (tensor<1x1x1x2048xf32>) -> tensor<2x7x7x2048xf32>
    %13 = stablehlo.subtract %arg0, %12 : tensor<2x7x7x2048xf32>
    %cst_4 = stablehlo.constant dense<9.99999974E-6> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %15 = stablehlo.add %10, %14 : tensor<2048xf32>
    %16 = stablehlo.rsqrt %15 : tensor<2048xf32>
    %17 = stablehlo.multiply %16, %arg1 : tensor<2048xf32>
    %18 = stablehlo.broadcast_in_dim %17, dims = [3] : (tensor<2048xf32>) -> tensor<1x1x1x2048xf32>
    %19 = stablehlo.broadcast_in_dim %18, dims = [0, 1, 2, 3] : (tensor<1x1x1x2048xf32>) -> tensor<2x7x7x2048xf32>
    %20 = stablehlo.multiply %13, %19 : tensor<2x7x7x2048xf32>
    %21 = stablehlo.broadcast_in_dim %arg2, dims = [3] : (tensor<2048xf32>) -> tensor<1x1x1x2048xf32>
    %22 = stablehlo.broadcast_in_dim %21, dims = [0, 1, 2, 3] : (tensor<1x1x1x2048xf32>) -> tensor<2x7x7x2048xf32>
    %23 = stablehlo.add %20, %22 : tensor<2x7x7x2048xf32>
    %cst_5 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %24 = stablehlo.broadcast_in_dim %cst_5, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %25 = stablehlo.multiply %24, %arg3 : tensor<2048xf32>
    %cst_6 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_6, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %27 = stablehlo.multiply %26, %2 : tensor<2048xf32>
    %28 = stablehlo.add %25, %27 : tensor<2048xf32>
    %cst_7 = stablehlo.constant dense<0.899999976> : tensor<f32>
    %29 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %30 = stablehlo.multiply %29, %arg4 : tensor<2048xf32>
    %cst_8 = stablehlo.constant dense<1.000000e-01> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<2048xf32>
    %32 = stablehlo.multiply %31, %10 : tensor<2048xf32>
    %33 = stablehlo.add %30, %32 : tensor<2048xf32>
    return %23, %28, %33 : tensor<2x7x7x2048xf32>, tensor<2048xf32>, tensor<2048xf32>
  }
  func.func private @relu_21(%arg0: tensor<2x7x7x2048xf32>) -> tensor<2x7x7x2048xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<2x7x7x2048xf32>
    %1 = stablehlo.maximum %arg0, %0 : tensor<2x7x7x2048xf32>
    return %1 : tensor<2x7x7x2048xf32>
  }
}
